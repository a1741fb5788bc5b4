package chaosagent;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;

/**
 * Reads behind the writer: workload.Follower.
 *
 * <p>Each look has a handle of its own. A handle learns of a new ensemble by a watch, a moment after it was stored; until then it
 * asks the old one, and the answers of a quorum there are too old. Nor does a handle count that all entries below its last ensemble
 * are confirmed, as a recovery does (LedgerRecoveryOp): where nothing was added to new bookies yet, it says -1.
 */
final class Follower {
    /** One long poll. */
    private static final long FOLLOW_MS = 500;

    private final Reader reader;
    private final History history;
    private final WriterFile writer;
    private long next;

    Follower(BookKeeper client, History history, long ledgerId, WriterFile writer) {
        this.reader = new Reader(client, history, ledgerId);
        this.history = history;
        this.writer = writer;
    }

    /** Until the ledger is closed and read to its end, or {@code stop} is set. */
    void follow(Stop stop) throws IOException, InterruptedException {
        while (!stop.isSet()) {
            try {
                if (look(stop)) {
                    return;
                }
            } catch (BKException | Reader.DeniedException problem) { // what it was is judged by the checker
                history.record("read failed", Failures.describe(problem));
                stop.awaitRetry();
            }
        }
    }

    private boolean look(Stop stop) throws BKException, Reader.DeniedException, IOException, InterruptedException {
        long confirmed = writer.lastConfirmed();
        long askedNs = System.nanoTime();
        try (LedgerHandle ledger = reader.open()) {
            long last = Math.max(ledger.getLastAddConfirmed(), ledger.getLedgerMetadata().getAllEnsembles().lastKey() - 1);
            show(last, true, askedNs);
            readTo(ledger, last);
            if (ledger.isClosed()) {
                return true;
            }
            readWhatTheWriterSays(ledger, confirmed, askedNs);
            await(ledger, stop);
        }
        return false;
    }

    private void readTo(LedgerHandle ledger, long last) throws BKException, Reader.DeniedException, InterruptedException {
        if (last >= next) {
            reader.read(ledger, next, last, false);
            next = last + 1;
        }
    }

    private void readWhatTheWriterSays(LedgerHandle ledger, long confirmed, long askedNs)
            throws BKException, InterruptedException {
        if (confirmed < next) {
            return;
        }
        try {
            reader.read(ledger, next, confirmed, false);
        } catch (Reader.DeniedException problem) {
            reader.denied(problem.entryId, askedNs);
        }
    }

    /** A long poll for the next entry. Bookies that have nothing of the ledger yet deny it: that shows nothing. */
    private void await(LedgerHandle ledger, Stop stop) throws BKException, InterruptedException {
        long askedNs = System.nanoTime();
        CompletableFuture<Long> answer = new CompletableFuture<>();
        ledger.asyncReadLastConfirmedAndEntry(next, FOLLOW_MS, false, (code, last, entry, context) -> {
            if (code == BKException.Code.OK) {
                recordEntry(entry);
                answer.complete(last);
            } else {
                answer.completeExceptionally(BKException.create(code));
            }
        }, null);
        try {
            show(answer.get(), false, askedNs);
        } catch (ExecutionException problem) {
            BKException failure = (BKException) problem.getCause();
            if (!Failures.isDenial(failure.getCode())) {
                throw failure;
            }
            stop.awaitRetry();
        }
    }

    private void recordEntry(LedgerEntry entry) {
        if (entry != null) {
            reader.record(entry.getEntryId(), List.of(History.digest(entry.getEntry())), false);
        }
    }

    private void show(long lastAddConfirmed, boolean isOfQuorum, long askedNs) {
        history.record("shown", Map.of("last_add_confirmed", lastAddConfirmed, "quorum", isOfQuorum, "asked_ns", askedNs));
    }
}
