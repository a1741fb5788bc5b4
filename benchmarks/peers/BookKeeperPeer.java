import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Scanner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * A client of Apache BookKeeper that stays warm between runs. Started with the metadata URI, a file of payloads, the bytes of
 * each, and whether it speaks the second version of the wire protocol, which batched reads need. Commands come one a line;
 * for each, one line of JSON goes out:
 *
 * <pre>
 * pace COUNT PER_SECOND                  a new ledger as with add; each entry is added when it is due, and its latency counts from then
 * add COUNT IN_FLIGHT                    a new ledger, 3/3/2, CRC32C; closed afterwards, outside of the time
 * read LEDGER BATCH IN_FLIGHT            all entries, BATCH in each batched read; the digests are verified
 * read-each LEDGER BATCH IN_FLIGHT       the same with ranges of single reads
 * check LEDGER                           every entry is what was added
 * </pre>
 */
public final class BookKeeperPeer {
    private static final byte[] PASSWORD = new byte[0];
    private static final int MAX_FRAME_BYTES = 5 * 1024 * 1024;

    /** A machine that does something else for a while is no reason to replace a bookie, of which there are no more. */
    private static final int PATIENCE_SECONDS = 60;

    private interface Read {
        CompletableFuture<LedgerEntries> start(LedgerHandle ledger, long first, int count);
    }

    private final BookKeeper client;
    private final byte[] payloads;
    private final int entryBytes;

    private BookKeeperPeer(BookKeeper client, byte[] payloads, int entryBytes) {
        this.client = client;
        this.payloads = payloads;
        this.entryBytes = entryBytes;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(Boolean.parseBoolean(arguments[3]));
        configuration.setBatchReadEnabled(true);
        configuration.setNettyMaxFrameSizeBytes(MAX_FRAME_BYTES);
        configuration.setThrottleValue(0);
        configuration.setAddEntryTimeout(PATIENCE_SECONDS);
        configuration.setReadEntryTimeout(PATIENCE_SECONDS);
        byte[] payloads = Files.readAllBytes(Path.of(arguments[1]));
        try (BookKeeper client = new BookKeeper(configuration); Scanner commands = new Scanner(System.in)) {
            BookKeeperPeer peer = new BookKeeperPeer(client, payloads, Integer.parseInt(arguments[2]));
            while (commands.hasNextLine()) {
                answers.println(peer.answer(commands.nextLine().split(" ")));
            }
        }
    }

    private String answer(String[] command) throws Exception {
        switch (command[0]) {
            case "add":
                return add(Integer.parseInt(command[1]), Integer.parseInt(command[2]));
            case "pace":
                return pace(Integer.parseInt(command[1]), Integer.parseInt(command[2]));
            case "read":
                return read(command, (ledger, first, count) -> ledger.batchReadAsync(first, count, MAX_FRAME_BYTES));
            case "read-each":
                return read(command, (ledger, first, count) -> ledger.readAsync(first, first + count - 1));
            case "check":
                return check(Long.parseLong(command[1]));
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private String add(int count, int inFlight) throws Exception {
        LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, PASSWORD);
        Semaphore room = new Semaphore(inFlight);
        AtomicInteger failure = new AtomicInteger(BKException.Code.OK);
        long started = System.nanoTime();
        for (int entry = 0; entry < count; entry++) {
            room.acquire();
            ledger.asyncAddEntry(payloads, offset(entry), entryBytes, (code, handle, id, context) -> {
                failure.compareAndSet(BKException.Code.OK, code);
                room.release();
            }, null);
        }
        room.acquire(inFlight);
        long nanoseconds = System.nanoTime() - started;
        if (failure.get() != BKException.Code.OK || ledger.getLastAddConfirmed() != count - 1) {
            throw BKException.create(failure.get());
        }
        ledger.close();
        return json(ledger.getId(), nanoseconds, count, (long) count * entryBytes);
    }

    private String pace(int count, int perSecond) throws Exception {
        LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, PASSWORD);
        CountDownLatch confirmed = new CountDownLatch(count);
        AtomicInteger failure = new AtomicInteger(BKException.Code.OK);
        long[] latencies = new long[count];
        long started = System.nanoTime();
        for (int entry = 0; entry < count; entry++) {
            int number = entry;
            long due = started + number * 1_000_000_000L / perSecond;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            ledger.asyncAddEntry(payloads, offset(entry), entryBytes, (code, handle, id, context) -> {
                latencies[number] = System.nanoTime() - due;
                failure.compareAndSet(BKException.Code.OK, code);
                confirmed.countDown();
            }, null);
        }
        confirmed.await();
        if (failure.get() != BKException.Code.OK) {
            throw BKException.create(failure.get());
        }
        ledger.close();
        return String.format("{\"latencies_ns\": %s}", Arrays.toString(latencies));
    }

    private int offset(long entry) {
        return (int) (entry % (payloads.length / entryBytes)) * entryBytes;
    }

    private String read(String[] command, Read read) throws Exception {
        int batch = Integer.parseInt(command[2]);
        int inFlight = Integer.parseInt(command[3]);
        try (LedgerHandle ledger = open(Long.parseLong(command[1]))) {
            long started = System.nanoTime();
            long[] found = readAll(ledger, batch, inFlight, read);
            return json(ledger.getId(), System.nanoTime() - started, found[0], found[1]);
        }
    }

    private LedgerHandle open(long ledgerId) throws Exception {
        return client.openLedger(ledgerId, BookKeeper.DigestType.CRC32C, PASSWORD);
    }

    /** A batched read may give fewer entries than it was asked for: the rest is then asked for at once. */
    private long[] readAll(LedgerHandle ledger, int batch, int inFlight, Read read) throws Exception {
        ArrayDeque<CompletableFuture<LedgerEntries>> reads = new ArrayDeque<>();
        long last = ledger.getLastAddConfirmed();
        long next = 0;
        long count = 0;
        long bytes = 0;
        while (count <= last) {
            for (; reads.size() < inFlight && next <= last; next += batch) {
                reads.add(read.start(ledger, next, (int) Math.min(batch, last + 1 - next)));
            }
            long end = Math.min(count / batch * batch + batch, last + 1);
            try (LedgerEntries entries = reads.remove().get()) {
                for (LedgerEntry entry : entries) {
                    count++;
                    bytes += entry.getEntryBuffer().readableBytes();
                }
            }
            if (count < end) {
                reads.addFirst(read.start(ledger, count, (int) (end - count)));
            }
        }
        return new long[] {count, bytes};
    }

    private String check(long ledgerId) throws Exception {
        try (LedgerHandle ledger = open(ledgerId)) {
            long last = ledger.getLastAddConfirmed();
            long bytes = 0;
            for (long first = 0; first <= last; first += 1000) {
                try (LedgerEntries entries = ledger.readAsync(first, Math.min(first + 999, last)).get()) {
                    for (LedgerEntry entry : entries) {
                        int offset = offset(entry.getEntryId());
                        if (!Arrays.equals(entry.getEntryBytes(), Arrays.copyOfRange(payloads, offset, offset + entryBytes))) {
                            throw new IllegalStateException("entry " + entry.getEntryId() + " is not what was added");
                        }
                        bytes += entryBytes;
                    }
                }
            }
            return json(ledgerId, 0, last + 1, bytes);
        }
    }

    private String json(long ledgerId, long nanoseconds, long entries, long bytes) {
        return String.format(
            "{\"ledger\": %d, \"seconds\": %f, \"entries\": %d, \"bytes\": %d}", ledgerId, nanoseconds / 1e9, entries, bytes);
    }
}
