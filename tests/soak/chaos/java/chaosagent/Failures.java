package chaosagent;

import java.util.Map;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BKException.Code;

/**
 * What an operation failed with, under the names that the checker knows (checker.EXPECTED) where a code means the same.
 *
 * <p>All other codes keep their names. LedgerRecoveryException hides whatever kept a recovery from its end (LedgerOpenOp): that it
 * ends once the bookies are back is demanded all the same.
 */
final class Failures {
    private static final Map<Integer, String> NAMES = Map.of(
        Code.LedgerFencedException, "LedgerFencedError",
        Code.LedgerClosedException, "LedgerClosedError",
        Code.NotEnoughBookiesException, "NotEnoughBookiesError",
        Code.AddEntryQuorumTimeoutException, "AddQuorumTimeoutError",
        Code.MetadataVersionException, "MetadataConflictError",
        Code.ZKException, "MetadataUnavailableError",
        Code.MetaStoreException, "MetadataUnavailableError",
        Code.BookieHandleNotAvailableException, "BookieUnavailableError",
        Code.TimeoutException, "BookieUnavailableError",
        Code.LedgerRecoveryException, "BookieUnavailableError");

    private Failures() {
    }

    static Map<String, String> describe(Throwable problem) {
        if (problem instanceof BKException failure) {
            return describe(failure.getCode());
        }
        return Map.of("error", problem.getClass().getSimpleName(), "text", problem.toString());
    }

    static Map<String, String> describe(int code) {
        String own = BKException.create(code).getClass().getSimpleName();
        return Map.of("error", NAMES.getOrDefault(code, own), "text", own + ": " + BKException.getMessage(code));
    }

    /** Whether a bookie's answer is that there is nothing; all that were asked said so, or the code would be another one. */
    static boolean isDenial(int code) {
        return code == Code.NoSuchEntryException || code == Code.NoSuchLedgerExistsException;
    }
}
