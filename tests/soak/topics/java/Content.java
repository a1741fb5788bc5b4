import java.nio.charset.StandardCharsets;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** What the message of a number holds: every mixture of key, ordering key, properties, event time and value, as primes meet. */
final class Content {
    private static final byte[] LETTERS = "abcdefghijklmnopqrstuvwxyz ".getBytes(StandardCharsets.US_ASCII);
    private static final int LONGEST = 150;
    private static final long TIME_MS = 1_700_000_000_000L;

    static TypedMessageBuilder<byte[]> fill(TypedMessageBuilder<byte[]> message, long number) {
        key(message, number);
        if (number % 3 == 0) {
            message.orderingKey(("order-" + number % 10).getBytes(StandardCharsets.UTF_8));
        }
        if (number % 2 == 0) {
            message.eventTime(TIME_MS + number);
        }
        for (int place = 0; place < number % 4; place++) {
            message.property("name-" + (number + place) % 6, "wert-ü-" + number * place);
        }
        if (number % 97 == 0) {
            message.property("", "").property("twice", "first").property("twice", "second");
        }
        return message.value(value(number));
    }

    /** Null for a tombstone. */
    static byte[] value(long number) {
        if (number % 13 == 5) {
            return null;
        }
        return number % 17 == 6 ? new byte[0] : letters(number, (int) (number * 7919 % LONGEST));
    }

    /** They repeat, so that they can be compressed. */
    static byte[] letters(long number, int size) {
        byte[] all = new byte[size];
        for (int i = 0; i < size; i++) {
            all[i] = LETTERS[(int) ((number + i) % LETTERS.length)];
        }
        return all;
    }

    private static void key(TypedMessageBuilder<byte[]> message, long number) {
        switch ((int) (number % 7)) {
            case 0 -> {}
            case 1 -> message.keyBytes(new byte[] {(byte) number, 0, (byte) 0xff});
            case 2 -> message.key("");
            case 3 -> message.key(null);
            case 4 -> message.key("schlüssel-" + number % 5);
            default -> message.key("key-" + number % 20);
        }
    }

    private Content() {}
}
