package chaosagent;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;

/** Creates a ledger and appends to it until it is stopped, the load's end, or the first failure: workload.Writer, entry by entry. */
final class Writer {
    private final BookKeeper client;
    private final History history;
    private final Load load;
    private final Settings settings;
    private final Random random;
    private final Semaphore room;
    private final AtomicBoolean hasFailed = new AtomicBoolean();
    private long appended;
    private long bytes;
    private LedgerHandle ledger;

    Writer(BookKeeper client, History history, Load load, Settings settings) {
        this.client = client;
        this.history = history;
        this.load = load;
        this.settings = settings;
        this.random = new Random(load.seed());
        this.room = new Semaphore(load.depth());
    }

    /**
     * The new ledger's id. The client may not know yet that all bookies are back after the last round: it tries again.
     *
     * <p>A client that lost its session has lost all addresses, too, and may find them ten seconds later. To list bookies looks
     * for them at once.
     */
    long create(Stop stop) throws InterruptedException {
        while (true) {
            try {
                new BookKeeperAdmin(client).getAvailableBookies();
                ledger = client.createLedger(
                    load.shape()[0], load.shape()[1], load.shape()[2], digestType(), Reader.PASSWORD);
                history.record("created", Map.of("ledger_id", ledger.getId()));
                return ledger.getId();
            } catch (BKException problem) {
                stop.awaitRetry();
            }
        }
    }

    void write(Stop stop) throws InterruptedException {
        while (!stop.isSet() && !hasFailed.get() && bytes < load.maxBytes()) {
            if (room.tryAcquire(Stop.RETRY_MS, TimeUnit.MILLISECONDS)) {
                append(sizes());
                TimeUnit.NANOSECONDS.sleep((long) (random.nextDouble() * 2e9 * load.pauseS()));
            }
        }
    }

    /** Until each append is confirmed or has failed, and that is recorded. */
    void awaitAnswers() throws InterruptedException {
        room.acquire(load.depth());
        history.record("writer ended", Map.of());
    }

    void close() throws InterruptedException {
        try {
            ledger.close();
            history.record("writer closed", Map.of("last", ledger.getLastAddConfirmed(), "length", ledger.getLength()));
        } catch (BKException problem) {
            history.record("writer failed", Failures.describe(problem));
        }
    }

    private BookKeeper.DigestType digestType() {
        return BookKeeper.DigestType.valueOf(load.digestType().equals("HMAC") ? "MAC" : load.digestType());
    }

    private List<Integer> sizes() {
        List<Integer> sizes = new ArrayList<>();
        long total = 0;
        for (int left = 1 + random.nextInt(load.maxBatch()); left > 0; left--) {
            int size = size();
            total += size;
            if (sizes.isEmpty() || total <= Math.max(settings.maxAppendBytes(), sizes.get(0))) {
                sizes.add(size);
            }
        }
        return sizes;
    }

    private int size() {
        int weights = 0;
        for (int weight : load.sizeWeights()) {
            weights += weight;
        }
        int chosen = random.nextInt(weights);
        int kind = 0;
        while (chosen >= load.sizeWeights()[kind]) {
            chosen -= load.sizeWeights()[kind++];
        }
        int most = settings.sizes()[kind];
        return most / 2 + random.nextInt(most - most / 2 + 1);
    }

    /** One append of the load: its entries go out one by one, and it is over when the last one is answered. */
    private void append(List<Integer> sizes) {
        AtomicInteger unanswered = new AtomicInteger(sizes.size());
        for (int size : sizes) {
            byte[] payload = new byte[size];
            random.nextBytes(payload);
            List<String> digests = List.of(History.digest(payload));
            history.record("appended", Map.of("first", appended, "sizes", List.of(size), "digests", digests));
            appended++;
            bytes += size;
            ledger.asyncAddEntry(payload, (code, handle, entryId, context) -> answered(code, entryId, unanswered), null);
        }
    }

    private void answered(int code, long entryId, AtomicInteger unanswered) {
        if (code == BKException.Code.OK) {
            history.record("confirmed", Map.of("first", entryId, "last", entryId));
        } else if (!hasFailed.getAndSet(true)) {
            history.record("writer failed", Failures.describe(code));
        }
        if (unanswered.decrementAndGet() == 0) {
            room.release();
        }
    }
}
