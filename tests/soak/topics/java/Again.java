import java.io.PrintStream;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/** Reads a topic from its first message on, again and again, a thread a partition. It answers each line with the count. */
final class Again {
    private static final int QUEUE = 10_000;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        AtomicLong count = new AtomicLong();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Scanner questions = new Scanner(System.in)) {
            for (String partition : client.getPartitionsForTopic(arguments[1], false).get()) {
                Thread thread = new Thread(() -> read(client, partition, count));
                thread.setDaemon(true);
                thread.start();
            }
            while (questions.hasNextLine()) {
                questions.nextLine();
                answers.println("{\"messages\": " + count.get() + "}");
            }
        }
        System.exit(0); // its threads are still at work
    }

    private static void read(PulsarClient client, String partition, AtomicLong count) {
        try {
            while (true) {
                try (Reader<byte[]> reader = client.newReader()
                        .topic(partition).startMessageId(MessageId.earliest).receiverQueueSize(QUEUE).create()) {
                    MessageIdAdv last = (MessageIdAdv) reader.getLastMessageIds().get(0);
                    MessageIdAdv id;
                    do {
                        id = (MessageIdAdv) reader.readNext().getMessageId();
                        count.incrementAndGet();
                    } while (id.getLedgerId() < last.getLedgerId() || id.getEntryId() < last.getEntryId());
                }
            }
        } catch (Exception problem) {
            problem.printStackTrace();
        }
    }

    private Again() {}
}
