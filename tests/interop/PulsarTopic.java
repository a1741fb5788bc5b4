import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.ManagedLedgerInternalStats;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * A Pulsar broker with one topic, and its one producer. Started with the address of ZooKeeper and the metadata URI of the bookies. A
 * ledger of the topic takes ten entries. Commands come one a line; for each, one line of JSON goes out:
 *
 * <pre>
 * send COUNT    messages, an entry each; the n-th of all says "message n", from 0 on
 * ledgers       what the broker says of the topic's ledgers, oldest first: [[id, entries], ...]; the last one is open, and
 *               the broker does not count its entries here
 * </pre>
 */
public final class PulsarTopic {
    private static final String TOPIC = "persistent://tenant/namespace/topic";

    public static void main(String[] arguments) throws Exception {
        try {
            serve(arguments);
        } catch (Exception problem) {
            problem.printStackTrace();
        }
        System.exit(0); // the broker leaves threads behind
    }

    private static void serve(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        try (PulsarService broker = new PulsarService(configuration(arguments[0], arguments[1]))) {
            broker.start();
            PulsarAdmin admin = broker.getAdminClient();
            admin.clusters().createCluster("test", ClusterData.builder().serviceUrl(broker.getWebServiceAddress()).build());
            admin.tenants().createTenant("tenant", TenantInfo.builder().allowedClusters(Set.of("test")).build());
            admin.namespaces().createNamespace("tenant/namespace", Set.of("test"));
            admin.namespaces().setRetention("tenant/namespace", new RetentionPolicies(-1, -1));
            try (PulsarClient client = PulsarClient.builder().serviceUrl(broker.getBrokerServiceUrl()).build();
                    Producer<byte[]> producer = client.newProducer().topic(TOPIC).enableBatching(false).create();
                    Scanner commands = new Scanner(System.in)) {
                int sent = 0;
                while (commands.hasNextLine()) {
                    String[] command = commands.nextLine().split(" ");
                    if (command[0].equals("send")) {
                        for (int end = sent + Integer.parseInt(command[1]); sent < end; sent++) {
                            producer.send(("message " + sent).getBytes(StandardCharsets.UTF_8));
                        }
                        answers.println("{\"sent\": " + sent + "}");
                    } else {
                        answers.println("{\"ledgers\": " + ledgers(admin) + "}");
                    }
                }
            }
        }
    }

    private static ServiceConfiguration configuration(String zookeeper, String bookies) {
        ServiceConfiguration configuration = new ServiceConfiguration();
        configuration.setClusterName("test");
        configuration.setMetadataStoreUrl("zk:" + zookeeper + "/pulsar");
        configuration.setConfigurationMetadataStoreUrl("zk:" + zookeeper + "/pulsar");
        configuration.setBookkeeperMetadataServiceUri(bookies);
        configuration.setAdvertisedAddress("127.0.0.1");
        configuration.setBrokerServicePort(Optional.of(0));
        configuration.setWebServicePort(Optional.of(0));
        configuration.setManagedLedgerDefaultEnsembleSize(3);
        configuration.setManagedLedgerDefaultWriteQuorum(3);
        configuration.setManagedLedgerDefaultAckQuorum(2);
        configuration.setManagedLedgerMaxEntriesPerLedger(10);
        configuration.setManagedLedgerMinLedgerRolloverTimeMinutes(0);
        configuration.setSystemTopicEnabled(false);
        configuration.setTopicLevelPoliciesEnabled(false);
        return configuration;
    }

    private static String ledgers(PulsarAdmin admin) throws Exception {
        ManagedLedgerInternalStats stats = admin.topics().getInternalStats(TOPIC);
        return stats.ledgers.stream().map(one -> "[" + one.ledgerId + ", " + one.entries + "]").collect(
                Collectors.joining(", ", "[", "]"));
    }
}
