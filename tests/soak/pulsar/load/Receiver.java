import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * One consumer of a subscription. It records a message, then acknowledges it: one by one, or in an exclusive subscription all up to
 * it. A shared subscription refuses some messages once, so that they come again.
 */
final class Receiver extends Thread {
    private static final int POLL_MS = 200;
    private static final int REFUSED_OF = 50;

    final AtomicLong spoilt = new AtomicLong();
    volatile String problem = "";
    private volatile boolean ends;
    private final Topic topic;
    private final SubscriptionType type;
    private final Records received;
    private final Consumer<byte[]> consumer;

    Receiver(Topic topic, SubscriptionType type, int number, PulsarClient client, Records received) throws IOException {
        super(topic.name() + " " + type + " " + number);
        this.topic = topic;
        this.type = type;
        this.received = received;
        consumer = client.newConsumer()
                .topic(topic.full())
                .subscriptionName(type.name())
                .subscriptionType(type)
                .consumerName(type.name() + "-" + number)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .negativeAckRedeliveryDelay(1, TimeUnit.SECONDS)
                .subscribe();
    }

    @Override
    public void run() {
        while (!ends) {
            try {
                Message<byte[]> message = consumer.receive(POLL_MS, TimeUnit.MILLISECONDS);
                if (message != null) {
                    take(message);
                }
            } catch (PulsarClientException.AlreadyClosedException closed) {
                return;
            } catch (PulsarClientException failure) {
                problem = failure.toString();
            }
        }
    }

    void end() throws IOException, InterruptedException {
        ends = true;
        join();
        consumer.close();
    }

    private void take(Message<byte[]> message) throws PulsarClientException {
        int sequence = Payload.sequence(topic.name(), message);
        if (sequence < 0) {
            spoilt.incrementAndGet();
        } else if (type == SubscriptionType.Shared && sequence % REFUSED_OF == 0 && message.getRedeliveryCount() == 0) {
            consumer.negativeAcknowledge(message);
            return;
        }
        received.add(Integer.parseInt(message.getKey()), sequence, message.getMessageId());
        if (type == SubscriptionType.Exclusive) {
            consumer.acknowledgeCumulativeAsync(message);
        } else {
            consumer.acknowledgeAsync(message);
        }
    }
}
