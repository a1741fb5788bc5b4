import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SubscriptionStats;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.policies.data.TopicStats;

/** What an operator does with topics. */
final class Administration {
    private final PulsarAdmin admin;

    Administration(PulsarAdmin admin) {
        this.admin = admin;
    }

    void tenant(String name, String cluster) throws PulsarAdminException {
        admin.tenants().createTenant(name, TenantInfo.builder().allowedClusters(Set.of(cluster)).build());
    }

    /** {@code retention} is -1 for all that was ever sent, 0 for what subscriptions still need. */
    void namespace(String name, int retention, boolean deduplicates) throws PulsarAdminException {
        admin.namespaces().createNamespace(name);
        admin.namespaces().setRetention(name, new RetentionPolicies(retention, retention));
        admin.namespaces().setDeduplicationStatus(name, deduplicates);
    }

    void create(Topic topic) throws PulsarAdminException {
        admin.topics().createPartitionedTopic(topic.full(), topic.partitions());
    }

    /** Entries that some subscription has not acknowledged, of all subscriptions. */
    long backlog(Topic topic) throws PulsarAdminException {
        Map<String, ? extends TopicStats> partitions = admin.topics().getPartitionedStats(topic.full(), true).getPartitions();
        return partitions.values().stream()
                .flatMap(one -> one.getSubscriptions().values().stream())
                .mapToLong(SubscriptionStats::getMsgBacklog)
                .sum();
    }

    void delete(Topic topic) throws PulsarAdminException {
        admin.topics().deletePartitionedTopic(topic.full(), true);
    }
}
