import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** Sends the messages of one topic at a rate, and records those that were acknowledged. After a stall it catches up. */
final class Sender extends Thread {
    private static final long TICK_NS = TimeUnit.MILLISECONDS.toNanos(100);

    final AtomicLong failed = new AtomicLong();
    final Records acknowledged;
    volatile String problem = "";
    private final Topic topic;
    private final Producer<byte[]> producer;
    private final long messages;
    private final double perSecond;
    private final int keys;

    Sender(Topic topic, PulsarClient client, Records acknowledged, long messages, double perSecond, int keys) throws IOException {
        super("sender of " + topic.name());
        this.topic = topic;
        this.acknowledged = acknowledged;
        this.messages = messages;
        this.perSecond = perSecond;
        this.keys = keys;
        producer = topic.producer(client);
    }

    @Override
    public void run() {
        long start = System.nanoTime();
        try {
            for (long number = 0; number < messages; number++) {
                long due = start + (long) (number / perSecond * 1e9);
                while (System.nanoTime() < due) {
                    LockSupport.parkNanos(TICK_NS);
                }
                send((int) (number % keys), (int) (number / keys));
            }
            producer.flush();
        } catch (IOException failure) {
            problem = failure.toString();
        }
    }

    void end() throws IOException, InterruptedException {
        join();
        producer.close();
        acknowledged.close();
    }

    private void send(int key, int sequence) {
        byte[] payload = Payload.of(topic.name(), key, sequence);
        producer.newMessage().key(Integer.toString(key)).value(payload).sendAsync().whenComplete((id, failure) -> {
            if (failure == null) {
                acknowledged.add(key, sequence, id);
            } else {
                failed.incrementAndGet();
                problem = failure.toString();
            }
        });
    }
}
