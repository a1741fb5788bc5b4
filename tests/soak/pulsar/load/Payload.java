import java.nio.charset.StandardCharsets;
import org.apache.pulsar.client.api.Message;

/** What a message says: "TOPIC KEY SEQUENCE ", and then letters, whose number and order follow from key and sequence. */
final class Payload {
    private static final byte[] LETTERS = "abcdefghijklmnopqrstuvwxyz".getBytes(StandardCharsets.US_ASCII);
    private static final int LONGEST = 1500;

    static byte[] of(String topic, int key, int sequence) {
        byte[] head = (topic + " " + key + " " + sequence + " ").getBytes(StandardCharsets.US_ASCII);
        int filler = (key * 31 + sequence * 7919) % LONGEST;
        byte[] all = new byte[head.length + filler];
        System.arraycopy(head, 0, all, 0, head.length);
        for (int i = 0; i < filler; i++) {
            all[head.length + i] = LETTERS[(key + sequence + i) % LETTERS.length];
        }
        return all;
    }

    /** The sequence of a message, or -1 if it says anything but what its key and sequence make. */
    static int sequence(String topic, Message<byte[]> message) {
        String[] words = new String(message.getData(), StandardCharsets.US_ASCII).split(" ", 4);
        int sequence = Integer.parseInt(words[2]);
        int key = Integer.parseInt(message.getKey());
        return java.util.Arrays.equals(message.getData(), of(topic, key, sequence)) ? sequence : -1;
    }

    private Payload() {}
}
