import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/** One form in which messages are written, in a topic of its own: a thread that sends bursts, which fill batches, at a rate. */
abstract class Form extends Thread {
    static final String LAST = "last";
    private static final int PENDING = 1000;
    private static final int BURST = 60;

    final AtomicLong acknowledged = new AtomicLong();
    final AtomicLong unseen = new AtomicLong();
    volatile String problem = "";
    final String topic;
    final int partitions;
    final int share;
    private final List<Producer<?>> producers = new ArrayList<>();
    private long messages;
    private double perSecond;

    /** {@code share} is of all messages, in thousandths. */
    Form(String name, int partitions, int share) {
        super("form " + name);
        this.topic = Main.NAMESPACE + name;
        this.partitions = partitions;
        this.share = share;
    }

    /** Make producers. */
    abstract void open(PulsarClient client) throws Exception;

    /** Send the message of a number: the thread counts from 0. */
    abstract void send(long number) throws Exception;

    /** What is open is ended. */
    void end() throws Exception {}

    /** In every partition a last message, and one behind it. */
    void mark(PulsarClient client) throws Exception {
        for (String partition : client.getPartitionsForTopic(topic, false).get()) {
            mark(client.newProducer().topic(partition), "the last one".getBytes());
        }
    }

    static <T> void mark(ProducerBuilder<T> builder, T value) throws IOException {
        try (Producer<T> producer = builder.create()) {
            producer.newMessage().property(LAST, "").value(value).send();
            producer.newMessage().value(value).send();
        }
    }

    void plan(long ofAll, double seconds) {
        messages = Math.max(20, ofAll * share / 1000);
        perSecond = messages / seconds;
    }

    @Override
    public void run() {
        long start = System.nanoTime();
        try {
            for (long number = 0; number < messages; number++) {
                long due = start + (long) (number / BURST * BURST / perSecond * 1e9);
                while (System.nanoTime() < due) {
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
                }
                send(number);
            }
            end();
            for (Producer<?> producer : producers) {
                producer.flush();
                producer.close();
            }
        } catch (Exception failure) {
            failure.printStackTrace();
            problem = topic + ": " + failure;
        }
    }

    /** It blocks where too much is under way, and never gives up. */
    <T> ProducerBuilder<T> builder(PulsarClient client, Schema<T> schema) {
        return client.newProducer(schema)
                .topic(topic)
                .sendTimeout(0, TimeUnit.SECONDS)
                .maxPendingMessages(PENDING)
                .blockIfQueueFull(true)
                .enableBatching(false);
    }

    <T> Producer<T> create(ProducerBuilder<T> builder) throws IOException {
        Producer<T> producer = builder.create();
        producers.add(producer);
        return producer;
    }

    /** Counts the message once it is acknowledged. */
    CompletableFuture<MessageId> count(CompletableFuture<MessageId> sent) {
        return sent.whenComplete((id, failure) -> {
            if (failure == null) {
                acknowledged.incrementAndGet();
            } else {
                problem = topic + ": " + failure;
            }
        });
    }
}
