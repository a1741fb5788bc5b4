import java.io.PrintStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Apache BookKeeper's client, told what to do over its input. Started with the metadata URI, whether it speaks version 2 of
 * the wire protocol, and how often, in ms, idle writers tell how far they are confirmed (0: never). System properties setting.NAME are settings of the client. Commands come one a line; for each, one line of JSON goes out, {"error": code} if it failed:
 *
 * <pre>
 * create E QW QA DIGEST PASSWORD    a new ledger, which stays open for its writer; PASSWORD is - for an empty one
 * add LEDGER COUNT SIZE             entries; their payloads follow from ledger, id and SIZE (payload()). If one fails: the error,
 *                                   and how many of them, from the first on, were confirmed
 * close LEDGER
 * open LEDGER DIGEST PASSWORD HOW   HOW: recover, or read
 * explicit LEDGER                   the last entry that its writer said to be confirmed while it was idle
 * read LEDGER FIRST LAST            count and SHA-256 of all payloads; their digests are verified
 * </pre>
 */
public final class ApacheClient {
    private static final String SETTING = "setting.";

    private final BookKeeper client;
    private final Map<Long, LedgerHandle> ledgers = new HashMap<>();

    private ApacheClient(BookKeeper client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(Boolean.parseBoolean(arguments[1]));
        configuration.setExplictLacInterval(Integer.parseInt(arguments[2]));
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith(SETTING)) {
                configuration.setProperty(name.substring(SETTING.length()), System.getProperty(name));
            }
        }
        try (BookKeeper client = new BookKeeper(configuration); Scanner commands = new Scanner(System.in)) {
            ApacheClient apache = new ApacheClient(client);
            while (commands.hasNextLine()) {
                String answer;
                try {
                    answer = apache.answer(commands.nextLine().split(" "));
                } catch (BKException problem) {
                    answer = String.format("{\"error\": %d}", problem.getCode());
                }
                answers.println(answer);
            }
        }
    }

    private String answer(String[] command) throws Exception {
        switch (command[0]) {
            case "create":
                return create(command);
            case "add":
                return add(Long.parseLong(command[1]), Integer.parseInt(command[2]), Integer.parseInt(command[3]));
            case "close":
                return close(Long.parseLong(command[1]));
            case "open":
                return open(command);
            case "explicit":
                return String.format("{\"last\": %d}", ledgers.get(Long.parseLong(command[1])).readExplicitLastConfirmed());
            case "read":
                return read(Long.parseLong(command[1]), Long.parseLong(command[2]), Long.parseLong(command[3]));
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private String create(String[] command) throws Exception {
        LedgerHandle ledger =
            client.createLedger(number(command, 1), number(command, 2), number(command, 3), digest(command[4]), password(command[5]));
        ledgers.put(ledger.getId(), ledger);
        return state(ledger);
    }

    private String add(long ledgerId, int count, int size) throws Exception {
        LedgerHandle ledger = ledgers.get(ledgerId);
        long first = ledger.getLastAddPushed() + 1;
        List<CompletableFuture<Long>> added = new ArrayList<>();
        for (long entry = first; entry < first + count; entry++) {
            added.add(ledger.appendAsync(payload(ledgerId, entry, size)));
        }
        for (int confirmed = 0; confirmed < count; confirmed++) {
            try {
                added.get(confirmed).get();
            } catch (ExecutionException problem) {
                int code = problem.getCause() instanceof BKException cause ? cause.getCode() : BKException.Code.UnexpectedConditionException;
                return String.format("{\"error\": %d, \"confirmed\": %d}", code, confirmed);
            }
        }
        return state(ledger);
    }

    private String close(long ledgerId) throws Exception {
        LedgerHandle ledger = ledgers.remove(ledgerId);
        ledger.close();
        return state(ledger);
    }

    private String open(String[] command) throws Exception {
        long ledgerId = Long.parseLong(command[1]);
        LedgerHandle ledger = command[4].equals("recover")
            ? client.openLedger(ledgerId, digest(command[2]), password(command[3]))
            : client.openLedgerNoRecovery(ledgerId, digest(command[2]), password(command[3]));
        ledgers.put(ledgerId, ledger);
        return state(ledger);
    }

    private String read(long ledgerId, long first, long last) throws Exception {
        MessageDigest all = MessageDigest.getInstance("SHA-256");
        long count = 0;
        Enumeration<LedgerEntry> entries = ledgers.get(ledgerId).readUnconfirmedEntries(first, last);
        while (entries.hasMoreElements()) {
            all.update(entries.nextElement().getEntry());
            count++;
        }
        return String.format("{\"count\": %d, \"sha256\": \"%s\"}", count, HexFormat.of().formatHex(all.digest()));
    }

    /** SIZE bytes; with -1 from 0 to 1,999, in a way that hardly repeats. */
    private static byte[] payload(long ledgerId, long entry, int size) {
        byte[] bytes = new byte[size >= 0 ? size : (int) (entry * 7919 % 2000)];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (ledgerId + 31 * entry + i);
        }
        return bytes;
    }

    private static int number(String[] command, int place) {
        return Integer.parseInt(command[place]);
    }

    private static BookKeeper.DigestType digest(String name) {
        return BookKeeper.DigestType.valueOf(name.equals("HMAC") ? "MAC" : name);
    }

    private static byte[] password(String text) {
        return text.equals("-") ? new byte[0] : text.getBytes();
    }

    private static String state(LedgerHandle ledger) {
        return String.format("{\"ledger\": %d, \"last\": %d, \"length\": %d, \"closed\": %b}",
            ledger.getId(), ledger.getLastAddConfirmed(), ledger.getLength(), ledger.isClosed());
    }
}
