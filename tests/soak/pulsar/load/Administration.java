import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.OffloadProcessStatus;
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

    /** All ledgers of a topic's partitions but the open ones go to where the broker's offloader brings them. */
    void offload(Topic topic) throws PulsarAdminException {
        for (int number = 0; number < topic.partitions(); number++) {
            String partition = topic.partition(number);
            admin.topics().triggerOffload(partition, admin.topics().getLastMessageId(partition));
        }
    }

    /** The first status that is not success, of all partitions. */
    String offloaded(Topic topic) throws PulsarAdminException {
        for (int number = 0; number < topic.partitions(); number++) {
            OffloadProcessStatus status = admin.topics().offloadStatus(topic.partition(number));
            if (status.getStatus() != LongRunningProcessStatus.Status.SUCCESS) {
                return status.getStatus() + " " + status.getLastError();
            }
        }
        return LongRunningProcessStatus.Status.SUCCESS.name();
    }

    void delete(Topic topic) throws PulsarAdminException {
        admin.topics().deletePartitionedTopic(topic.full(), true);
    }
}
