package chaosagent;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;

/** Opens a ledger with recovery, and reads it: workload.recover and workload.read_all. */
final class Reader {
    static final byte[] PASSWORD = new byte[0];

    /** The client takes the digest type from the metadata. */
    private static final BookKeeper.DigestType ANY_DIGEST_TYPE = BookKeeper.DigestType.CRC32C;

    /** Reads under way at a time. */
    private static final int AT_ONCE = 50;

    private final BookKeeper client;
    private final History history;
    private final long ledgerId;

    Reader(BookKeeper client, History history, long ledgerId) {
        this.client = client;
        this.history = history;
        this.ledgerId = ledgerId;
    }

    /** All bookies that could hold an entry said that they have none. */
    static final class DeniedException extends Exception {
        private static final long serialVersionUID = 1;

        final long entryId;

        DeniedException(long entryId) {
            super("there is no entry " + entryId);
            this.entryId = entryId;
        }
    }

    /** Open with recovery, again after each failure, as an application does. */
    void recover(Stop stop) throws InterruptedException {
        while (!stop.isSet()) {
            history.record("opening", Map.of());
            try (LedgerHandle ledger = client.openLedger(ledgerId, ANY_DIGEST_TYPE, PASSWORD)) {
                history.record("opened", Map.of("last", ledger.getLastAddConfirmed(), "length", ledger.getLength()));
                return;
            } catch (BKException problem) {
                history.record("open failed", Failures.describe(problem));
                stop.awaitRetry();
            }
        }
    }

    /** Read the closed ledger from its first to its last entry: the final read of a round. */
    void readAll(Stop stop) throws InterruptedException {
        while (!stop.isSet()) {
            try (LedgerHandle ledger = open()) {
                read(ledger, 0, ledger.getLastAddConfirmed(), true);
                return;
            } catch (DeniedException problem) {
                denied(problem.entryId, System.nanoTime());
                return;
            } catch (BKException problem) {
                history.record("read failed", Failures.describe(problem));
                stop.awaitRetry();
            }
        }
    }

    /** Without recovery. Where too few bookies answer the client says ReadException, whatever kept them from it (LedgerOpenOp). */
    LedgerHandle open() throws BKException, InterruptedException {
        try {
            return client.openLedgerNoRecovery(ledgerId, ANY_DIGEST_TYPE, PASSWORD);
        } catch (BKException.BKReadException problem) {
            throw new BKException.BKBookieHandleNotAvailableException();
        }
    }

    void denied(long entryId, long askedNs) {
        history.record("denied", Map.of("entry_id", entryId, "asked_ns", askedNs));
    }

    /** Each entry by a read of its own, for the client does not say which one of a range is denied. */
    void read(LedgerHandle ledger, long first, long last, boolean isFinal)
            throws BKException, DeniedException, InterruptedException {
        if (last < first) {
            record(first, List.of(), isFinal);
        }
        for (long begin = first; begin <= last; begin += AT_ONCE) {
            List<CompletableFuture<String>> reads = new ArrayList<>();
            for (long entryId = begin; entryId <= Math.min(last, begin + AT_ONCE - 1); entryId++) {
                reads.add(ledger.readUnconfirmedAsync(entryId, entryId).thenApply(Reader::digest));
            }
            List<String> digests = new ArrayList<>();
            try {
                for (CompletableFuture<String> read : reads) {
                    digests.add(await(read, begin + digests.size()));
                }
            } finally {
                if (!digests.isEmpty()) {
                    record(begin, digests, isFinal);
                }
            }
        }
    }

    void record(long first, List<String> digests, boolean isFinal) {
        history.record("read", Map.of("first", first, "digests", digests, "final", isFinal));
    }

    private static String digest(LedgerEntries entries) {
        try (entries) {
            return History.digest(entries.iterator().next().getEntryBytes());
        }
    }

    private static String await(CompletableFuture<String> read, long entryId)
            throws BKException, DeniedException, InterruptedException {
        try {
            return read.get();
        } catch (ExecutionException problem) {
            if (!(problem.getCause() instanceof BKException failure)) {
                throw new IllegalStateException(problem);
            }
            if (Failures.isDenial(failure.getCode())) {
                throw new DeniedException(entryId);
            }
            throw failure;
        }
    }
}
