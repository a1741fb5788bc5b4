import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** Sends as fast as it is acknowledged, with batches as by default, and says of every second how many and how late. */
final class Speed extends Thread {
    private static final int MOST = 1 << 20;

    /** Of a partition: what waits longer says how long the queue is, not how late an add. */
    private static final int PENDING = 1000;

    private final Producer<byte[]> producer;
    private final byte[] value;
    private final long[] latenciesNs = new long[MOST];
    private final AtomicInteger count = new AtomicInteger();
    private final StringBuilder seconds = new StringBuilder();
    private volatile boolean ends;
    private long began = System.nanoTime();

    Speed(PulsarClient client, String topic, int bytes) throws Exception {
        super("speed");
        value = Content.letters(1, bytes);
        producer = client.newProducer()
                .topic(topic)
                .sendTimeout(0, TimeUnit.SECONDS)
                .maxPendingMessages(PENDING)
                .blockIfQueueFull(true)
                .create();
    }

    @Override
    public void run() {
        while (!ends) {
            long sent = System.nanoTime();
            producer.sendAsync(value).thenRun(() -> {
                int place = count.getAndIncrement();
                if (place < MOST) {
                    latenciesNs[place] = System.nanoTime() - sent;
                }
            });
            if (sent - began >= TimeUnit.SECONDS.toNanos(1)) {
                note(sent);
            }
        }
    }

    /** JSON of [messages per second, p99 in ms] of every second since the last call. */
    String seconds() {
        synchronized (seconds) {
            String all = "[" + seconds + "]";
            seconds.setLength(0);
            return all;
        }
    }

    void end() throws Exception {
        ends = true;
        join();
        producer.flush();
        producer.close();
    }

    /** What is acknowledged while it is counted is of the next second, or lost to the percentile. */
    private void note(long now) {
        int found = count.getAndSet(0);
        long[] sorted = Arrays.copyOf(latenciesNs, Math.min(found, MOST));
        Arrays.sort(sorted);
        double p99 = sorted.length == 0 ? (now - began) / 1e6 : sorted[(int) (sorted.length * 0.99)] / 1e6;
        synchronized (seconds) {
            seconds.append(seconds.length() == 0 ? "" : ", ");
            seconds.append("[").append(found / ((now - began) / 1e9)).append(", ").append(p99).append("]");
        }
        began = now;
    }
}
