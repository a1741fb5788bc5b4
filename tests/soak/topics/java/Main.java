import java.io.File;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * Pulsar's own client. Started with the service URLs of clients and of administration. Commands come one a line; for each, one
 * line of JSON goes out, {"error": TEXT} if it failed:
 *
 * <pre>
 * setup CLUSTER                 tenant and namespace
 * forms WITHOUT                 the topics of all forms: {"topics": {NAME: PARTITIONS}}, 0 for none; not those named so, or -
 * topic NAME PARTITIONS         one more
 * write MESSAGES SECONDS        all forms begin
 * status                        messages acknowledged; of these unseen, which no reader gets; forms that still write; problem
 * mark                          in every partition a last message, and one behind it
 * receive TOPIC DIRECTORY       everything from the first message to the last one, into columns: see Received
 * leave TOPIC NAME PLACE        a subscription acknowledges up to this message; its topic is unloaded: {"next": [ID]}, its next one
 * speed TOPIC BYTES             begins to send as fast as it can
 * seconds                       of each second since the last question: messages a second, p99 of ms until acknowledged
 * rest                          sends no more
 * fill TOPIC MESSAGES BYTES     sends with the producer's defaults, and waits for the end
 * drain TOPIC                   reads everything, with one reader and one thread for each partition: messages and seconds
 * </pre>
 */
public final class Main {
    static final String NAMESPACE = "persistent://topics/proof/";
    private static final int READ_S = 120;
    private static final int QUEUE = 10_000;

    /** It needs no transactions of the broker. */
    private final PulsarClient client;
    private final String serviceUrl;
    private final PulsarAdmin admin;
    private final Map<String, Form> forms = new LinkedHashMap<>();
    private Speed speed;

    private Main(PulsarClient client, PulsarAdmin admin, String serviceUrl) {
        this.client = client;
        this.serviceUrl = serviceUrl;
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).readTimeout(2, TimeUnit.MINUTES).build();
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Scanner commands = new Scanner(System.in)) {
            Main program = new Main(client, admin, arguments[0]);
            while (commands.hasNextLine()) {
                answers.println(program.answer(commands.nextLine().split(" ")));
            }
        }
        System.exit(0); // threads may still be at work
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
            case "setup" -> setUp(words[1]);
            case "forms" -> {
                return forms(words[1]);
            }
            case "topic" -> create(words[1], Integer.parseInt(words[2]));
            case "write" -> write(Long.parseLong(words[1]), Double.parseDouble(words[2]));
            case "status" -> {
                return status();
            }
            case "mark" -> mark();
            case "receive" -> {
                return receive(words[1], new File(words[2]));
            }
            case "leave" -> {
                return leave(words[1], words[2], Long.parseLong(words[3]));
            }
            case "speed" -> {
                speed = new Speed(client, words[1], Integer.parseInt(words[2]));
                speed.start();
            }
            case "seconds" -> {
                return "\"seconds\": " + speed.seconds();
            }
            case "rest" -> speed.end();
            case "fill" -> fill(words[1], Long.parseLong(words[2]), Integer.parseInt(words[3]));
            case "drain" -> {
                return drain(words[1]);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private void setUp(String cluster) throws Exception {
        String namespace = "topics/proof";
        admin.tenants().createTenant("topics", TenantInfo.builder().allowedClusters(Set.of(cluster)).build());
        admin.namespaces().createNamespace(namespace);
        admin.namespaces().setRetention(namespace, new RetentionPolicies(-1, -1));
        admin.namespaces().setSchemaCompatibilityStrategy(namespace, SchemaCompatibilityStrategy.ALWAYS_COMPATIBLE);
    }

    private String forms(String without) throws Exception {
        List<String> pairs = new ArrayList<>();
        for (Form form : Forms.all()) {
            if (form.topic.startsWith(NAMESPACE + without)) {
                continue;
            }
            int partitions = form.partitions == 1 ? 0 : form.partitions;
            create(form.topic, partitions);
            forms.put(form.topic, form);
            pairs.add(quoted(form.topic) + ": " + partitions);
        }
        return "\"topics\": {" + String.join(", ", pairs) + "}";
    }

    private void create(String topic, int partitions) throws Exception {
        if (partitions == 0) {
            admin.topics().createNonPartitionedTopic(topic);
        } else {
            admin.topics().createPartitionedTopic(topic, partitions);
        }
    }

    private void write(long messages, double seconds) throws Exception {
        PulsarClient transactional = PulsarClient.builder().serviceUrl(serviceUrl).enableTransaction(true).build();
        for (Form form : forms.values()) {
            form.plan(messages, seconds);
            form.open(transactional);
        }
        forms.values().forEach(Thread::start);
    }

    private String status() {
        long acknowledged = 0;
        long unseen = 0;
        long writing = 0;
        String problem = "";
        for (Form form : forms.values()) {
            acknowledged += form.acknowledged.get();
            unseen += form.unseen.get();
            writing += form.isAlive() ? 1 : 0;
            problem = form.problem.isEmpty() ? problem : form.problem;
        }
        return "\"acknowledged\": " + acknowledged + ", \"unseen\": " + unseen + ", \"writing\": " + writing + ", \"problem\": "
                + quoted(problem);
    }

    private void mark() throws Exception {
        for (Form form : forms.values()) {
            form.mark(client);
        }
    }

    private String receive(String topic, File directory) throws Exception {
        long count = 0;
        try (Received received = new Received(directory)) {
            for (String partition : client.getPartitionsForTopic(topic, false).get()) {
                try (Reader<byte[]> reader = reader(partition)) {
                    Message<byte[]> message;
                    do {
                        message = there(reader.readNext(READ_S, TimeUnit.SECONDS), partition);
                        received.add(message);
                        count++;
                    } while (!message.hasProperty(Form.LAST));
                }
            }
        }
        return "\"messages\": " + count;
    }

    private Reader<byte[]> reader(String partition) throws Exception {
        return client.newReader()
                .topic(partition)
                .startMessageId(MessageId.earliest)
                .receiverQueueSize(QUEUE)
                .cryptoFailureAction(ConsumerCryptoFailureAction.DISCARD)
                .maxPendingChunkedMessage(1000)
                .create();
    }

    private static Message<byte[]> there(Message<byte[]> message, String topic) {
        if (message == null) {
            throw new IllegalStateException("no message of " + topic + " for " + READ_S + " s");
        }
        return message;
    }

    private String leave(String topic, String name, long place) throws Exception {
        try (Consumer<byte[]> consumer = subscribe(topic, name)) {
            for (long number = 0; number < place; number++) {
                next(consumer, topic);
            }
            consumer.acknowledgeCumulative(next(consumer, topic).getMessageId());
        }
        admin.topics().unload(topic); // the broker keeps the position: while a topic is in use it does so now and then
        try (Consumer<byte[]> consumer = subscribe(topic, name)) {
            MessageIdAdv id = (MessageIdAdv) next(consumer, topic).getMessageId();
            return "\"next\": [" + id.getLedgerId() + ", " + id.getEntryId() + ", " + id.getBatchIndex() + "]";
        }
    }

    private Consumer<byte[]> subscribe(String topic, String name) throws Exception {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName(name)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .receiverQueueSize(QUEUE)
                .subscribe();
    }

    private static Message<byte[]> next(Consumer<byte[]> consumer, String topic) throws Exception {
        return there(consumer.receive(READ_S, TimeUnit.SECONDS), topic);
    }

    private void fill(String topic, long messages, int bytes) throws Exception {
        try (Producer<byte[]> producer =
                client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).blockIfQueueFull(true).create()) {
            for (long number = 0; number < messages; number++) {
                producer.sendAsync(Content.letters(number, bytes));
            }
            producer.flush();
        }
    }

    private String drain(String topic) throws Exception {
        List<Drain> drains = new ArrayList<>();
        long began = System.nanoTime();
        for (String partition : client.getPartitionsForTopic(topic, false).get()) {
            drains.add(new Drain(reader(partition)));
        }
        long count = 0;
        for (Drain drain : drains) {
            drain.join();
            if (drain.problem != null) {
                throw drain.problem;
            }
            count += drain.count;
        }
        return "\"messages\": " + count + ", \"seconds\": " + (System.nanoTime() - began) / 1e9;
    }

    private static final class Drain extends Thread {
        private final Reader<byte[]> reader;
        private long count;
        private Exception problem;

        Drain(Reader<byte[]> reader) {
            this.reader = reader;
            start();
        }

        @Override
        public void run() {
            try (reader) {
                while (reader.hasMessageAvailable()) {
                    reader.readNext();
                    count++;
                }
            } catch (Exception failure) {
                problem = failure;
            }
        }
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s", " ") + "\"";
    }
}
