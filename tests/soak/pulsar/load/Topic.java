import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import java.util.concurrent.TimeUnit;

/** A partitioned topic: what its messages are like. {@code batching} is off, keys (a batch has one key) or mixed. */
record Topic(String name, String full, int partitions, String batching, CompressionType compression) {
    private static final int PENDING = 2000;
    private static final int DELAY_MS = 100;

    /** It never gives up a message, so that messages stay in order. */
    Producer<byte[]> producer(PulsarClient client) throws PulsarClientException {
        return client.newProducer()
                .topic(full)
                .producerName("producer-of-" + name)
                .enableBatching(!batching.equals("off"))
                .batcherBuilder(batching.equals("keys") ? BatcherBuilder.KEY_BASED : BatcherBuilder.DEFAULT)
                .batchingMaxPublishDelay(DELAY_MS, TimeUnit.MILLISECONDS)
                .compressionType(compression)
                .sendTimeout(0, TimeUnit.SECONDS)
                .maxPendingMessages(PENDING)
                .blockIfQueueFull(true)
                .create();
    }

    String partition(int number) {
        return full + "-partition-" + number;
    }
}
