package chaosagent;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Asks a task to end. */
final class Stop {
    /** How long a task waits after a failure before it tries again. */
    static final long RETRY_MS = 100;

    private final CountDownLatch asked = new CountDownLatch(1);

    void set() {
        asked.countDown();
    }

    boolean isSet() {
        return asked.getCount() == 0;
    }

    void awaitRetry() throws InterruptedException {
        asked.await(RETRY_MS, TimeUnit.MILLISECONDS);
    }
}
