import java.io.File;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * The clients of some topics. Started with the service URLs of clients and of administration, and the directory of its records.
 * Commands come one a line; for each, one line of JSON goes out, {"error": TEXT} if it failed:
 *
 * <pre>
 * tenant NAME CLUSTER
 * namespace NAME RETENTION DEDUPLICATES       -1 retains everything, 0 nothing
 * topic NAME FULL PARTITIONS BATCHING COMPRESSION
 * subscribe TOPIC TYPE CONSUMERS              records what it receives in received-TOPIC-TYPE
 * send TOPIC COUNT PER_SECOND KEYS            begins; records what is acknowledged in acknowledged-TOPIC
 * status                                      counts so far: acknowledged of each topic, received of each subscription, failed
 *                                             sends, messages that are not what was sent, the last problem
 * backlog                                     entries that subscriptions still have to acknowledge
 * end                                         waits for all senders, and closes senders, consumers and records
 * read TOPIC                                  everything from the first message on, with readers, into read-TOPIC
 * delete TOPIC
 * </pre>
 */
public final class PulsarLoad {
    private static final int READ_S = 120;
    private static final int RETRY_S = 3;

    private final PulsarClient client;
    private final Administration administration;
    private final File records;
    private final Map<String, Topic> topics = new LinkedHashMap<>();
    private final Map<String, Sender> senders = new LinkedHashMap<>();
    private final Map<String, Records> received = new LinkedHashMap<>();
    private final List<Receiver> receivers = new ArrayList<>();

    private PulsarLoad(PulsarClient client, PulsarAdmin admin, File records) {
        this.client = client;
        this.administration = new Administration(admin);
        this.records = records;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).readTimeout(2, TimeUnit.MINUTES).build();
                PulsarClient client = client(arguments[0]);
                Scanner commands = new Scanner(System.in)) {
            PulsarLoad load = new PulsarLoad(client, admin, new File(arguments[2]));
            while (commands.hasNextLine()) {
                answers.println(load.answer(commands.nextLine().split(" ")));
            }
        }
        System.exit(0); // senders may still be at work
    }

    private static PulsarClient client(String serviceUrl) throws Exception {
        return PulsarClient.builder()
                .serviceUrl(serviceUrl)
                .connectionTimeout(RETRY_S, TimeUnit.SECONDS)
                .startingBackoffInterval(100, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(RETRY_S, TimeUnit.SECONDS)
                .build();
    }

    private String answer(String[] words) {
        try {
            return "{" + act(words) + "}";
        } catch (Exception problem) {
            problem.printStackTrace();
            return "{\"error\": " + quoted(words[0] + ": " + problem) + "}";
        }
    }

    private String act(String[] words) throws Exception {
        switch (words[0]) {
            case "tenant" -> administration.tenant(words[1], words[2]);
            case "namespace" -> administration.namespace(words[1], Integer.parseInt(words[2]), Boolean.parseBoolean(words[3]));
            case "topic" -> topic(new Topic(words[1], words[2], Integer.parseInt(words[3]), words[4], CompressionType.valueOf(words[5])));
            case "subscribe" -> subscribe(topics.get(words[1]), SubscriptionType.valueOf(words[2]), Integer.parseInt(words[3]));
            case "send" -> send(topics.get(words[1]), Long.parseLong(words[2]), Double.parseDouble(words[3]), Integer.parseInt(words[4]));
            case "end" -> end();
            case "delete" -> administration.delete(topics.get(words[1]));
            case "read" -> {
                return read(topics.get(words[1]));
            }
            case "backlog" -> {
                return backlog();
            }
            case "status" -> {
                return status();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private void topic(Topic topic) throws Exception {
        administration.create(topic);
        topics.put(topic.name(), topic);
    }

    private void subscribe(Topic topic, SubscriptionType type, int consumers) throws Exception {
        String name = topic.name() + "-" + type.name();
        Records file = new Records(new File(records, "received-" + name));
        received.put(name, file);
        for (int number = 1; number <= consumers; number++) {
            Receiver receiver = new Receiver(topic, type, number, client, file);
            receivers.add(receiver);
            receiver.start();
        }
    }

    private void send(Topic topic, long messages, double perSecond, int keys) throws Exception {
        Records file = new Records(new File(records, "acknowledged-" + topic.name()));
        Sender sender = new Sender(topic, client, file, messages, perSecond, keys);
        senders.put(topic.name(), sender);
        sender.start();
    }

    private void end() throws Exception {
        for (Sender sender : senders.values()) {
            sender.end();
        }
        for (Receiver receiver : receivers) {
            receiver.end();
        }
        for (Records file : received.values()) {
            file.close();
        }
    }

    private String read(Topic topic) throws Exception {
        long count = 0;
        long spoilt = 0;
        try (Records file = new Records(new File(records, "read-" + topic.name()))) {
            for (int number = 0; number < topic.partitions(); number++) {
                try (Reader<byte[]> reader =
                        client.newReader().topic(topic.partition(number)).startMessageId(MessageId.earliest).create()) {
                    while (reader.hasMessageAvailable()) {
                        Message<byte[]> message = reader.readNext(READ_S, TimeUnit.SECONDS);
                        if (message == null) {
                            throw new IllegalStateException("nothing was read for " + READ_S + " s though there is more");
                        }
                        int sequence = Payload.sequence(topic.name(), message);
                        spoilt += sequence < 0 ? 1 : 0;
                        file.add(Integer.parseInt(message.getKey()), sequence, message.getMessageId());
                        count++;
                    }
                }
            }
        }
        return "\"read\": " + count + ", \"spoilt\": " + spoilt;
    }

    private String backlog() throws Exception {
        long backlog = 0;
        for (Topic topic : topics.values()) {
            backlog += administration.backlog(topic);
        }
        return "\"backlog\": " + backlog;
    }

    private String status() {
        Map<String, Long> acknowledged = new LinkedHashMap<>();
        Map<String, Long> counts = new LinkedHashMap<>();
        long failed = 0;
        long spoilt = 0;
        String problem = "";
        for (Map.Entry<String, Sender> one : senders.entrySet()) {
            acknowledged.put(one.getKey(), one.getValue().acknowledged.count());
            failed += one.getValue().failed.get();
            problem = one.getValue().problem.isEmpty() ? problem : one.getValue().problem;
        }
        received.forEach((name, file) -> counts.put(name, file.count()));
        for (Receiver receiver : receivers) {
            spoilt += receiver.spoilt.get();
            problem = receiver.problem.isEmpty() ? problem : receiver.problem;
        }
        return "\"acknowledged\": " + object(acknowledged) + ", \"received\": " + object(counts) + ", \"failed\": " + failed
                + ", \"spoilt\": " + spoilt + ", \"problem\": " + quoted(problem);
    }

    private static String object(Map<String, Long> counts) {
        List<String> pairs = new ArrayList<>();
        counts.forEach((name, count) -> pairs.add(quoted(name) + ": " + count));
        return "{" + String.join(", ", pairs) + "}";
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s", " ") + "\"";
    }
}
