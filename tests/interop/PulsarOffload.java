import java.io.PrintStream;
import java.util.Optional;
import java.util.Properties;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.OffloadProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.ManagedLedgerInternalStats;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * A Pulsar broker with one topic whose ledgers it copies to an object store, in blocks of 5 MiB. Started with the address of
 * ZooKeeper, the metadata URI of the bookies, the directory of the offloader's archive, and the endpoint, region and bucket of the
 * object store, whose keys are ACCESS_KEY_ID and ACCESS_KEY_SECRET in the environment. A ledger of the topic takes 20 entries.
 * Commands come one a line; for each, one line of JSON goes out:
 *
 * <pre>
 * send COUNT SIZE    messages of SIZE bytes, an entry each; byte i of the n-th of all, from 0 on, is 31 * n + i + i / 256
 * offload            all closed ledgers; answers what came of it once their copies are complete
 * trim               deletes on the bookies what was offloaded
 * ledgers            what the broker says of the topic's ledgers, oldest first: [[id, entries, offloaded], ...]
 * </pre>
 */
public final class PulsarOffload {
    private static final String TOPIC = "persistent://tenant/namespace/topic";
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);

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
        try (PulsarService broker = new PulsarService(configuration(arguments))) {
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
                MessageId last = MessageId.earliest;
                while (commands.hasNextLine()) {
                    String[] command = commands.nextLine().split(" ");
                    switch (command[0]) {
                        case "send":
                            for (int end = sent + Integer.parseInt(command[1]); sent < end; sent++) {
                                last = producer.send(payload(sent, Integer.parseInt(command[2])));
                            }
                            answers.println("{\"sent\": " + sent + "}");
                            break;
                        case "offload":
                            answers.println("{\"offload\": \"" + offload(admin, last) + "\"}");
                            break;
                        case "trim":
                            admin.topics().trimTopic(TOPIC);
                            answers.println("{}");
                            break;
                        default:
                            answers.println("{\"ledgers\": " + ledgers(admin) + "}");
                    }
                }
            }
        }
    }

    private static byte[] payload(int number, int size) {
        byte[] payload = new byte[size];
        for (int i = 0; i < size; i++) {
            payload[i] = (byte) (31 * number + i + i / 256);
        }
        return payload;
    }

    private static String offload(PulsarAdmin admin, MessageId before) throws Exception {
        admin.topics().triggerOffload(TOPIC, before);
        OffloadProcessStatus status = admin.topics().offloadStatus(TOPIC);
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (status.getStatus() == LongRunningProcessStatus.Status.RUNNING && System.nanoTime() < deadline) {
            Thread.sleep(50);
            status = admin.topics().offloadStatus(TOPIC);
        }
        return status.getStatus() + " " + status.getLastError().replaceAll("[^ -~]|[\"\\\\]", " ");
    }

    private static ServiceConfiguration configuration(String[] arguments) {
        ServiceConfiguration configuration = new ServiceConfiguration();
        configuration.setClusterName("test");
        configuration.setMetadataStoreUrl("zk:" + arguments[0] + "/pulsar-offload");
        configuration.setConfigurationMetadataStoreUrl("zk:" + arguments[0] + "/pulsar-offload");
        configuration.setBookkeeperMetadataServiceUri(arguments[1]);
        configuration.setAdvertisedAddress("127.0.0.1");
        configuration.setBrokerServicePort(Optional.of(0));
        configuration.setWebServicePort(Optional.of(0));
        configuration.setManagedLedgerDefaultEnsembleSize(3);
        configuration.setManagedLedgerDefaultWriteQuorum(3);
        configuration.setManagedLedgerDefaultAckQuorum(2);
        configuration.setManagedLedgerMaxEntriesPerLedger(20);
        configuration.setManagedLedgerMinLedgerRolloverTimeMinutes(0);
        configuration.setSystemTopicEnabled(false);
        configuration.setTopicLevelPoliciesEnabled(false);
        configuration.setOffloadersDirectory(arguments[2]);
        Properties offload = configuration.getProperties();
        offload.setProperty("managedLedgerOffloadDriver", "S3");
        offload.setProperty("offloadersDirectory", arguments[2]);
        offload.setProperty("managedLedgerOffloadServiceEndpoint", arguments[3]);
        offload.setProperty("managedLedgerOffloadRegion", arguments[4]);
        offload.setProperty("managedLedgerOffloadBucket", arguments[5]);
        offload.setProperty("managedLedgerOffloadMaxBlockSizeInBytes", String.valueOf(5 << 20));
        offload.setProperty("managedLedgerOffloadDeletionLagMs", "0");
        return configuration;
    }

    private static String ledgers(PulsarAdmin admin) throws Exception {
        ManagedLedgerInternalStats stats = admin.topics().getInternalStats(TOPIC);
        return stats.ledgers.stream().map(one -> "[" + one.ledgerId + ", " + one.entries + ", " + one.offloaded + "]").collect(
                Collectors.joining(", ", "[", "]"));
    }
}
