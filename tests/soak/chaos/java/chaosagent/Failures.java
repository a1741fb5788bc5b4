package chaosagent;

import java.util.Map;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BKException.Code;

/**
 * What an operation failed with, under the names that the checker knows (checker.EXPECTED) where a code means the same.
 *
 * <p>All other codes keep their names. The client says ReadException of an open without recovery, and LedgerRecoveryException of
 * one with it, whatever kept it from an answer of enough bookies (LedgerOpenOp): the round still demands that it ends once they
 * are back. DataUnknownException is a bookie's answer that it may have lost what was asked for.
 */
final class Failures {
    private static final Map<Integer, String> NAMES = Map.ofEntries(
        Map.entry(Code.LedgerFencedException, "LedgerFencedError"),
        Map.entry(Code.LedgerClosedException, "LedgerClosedError"),
        Map.entry(Code.NotEnoughBookiesException, "NotEnoughBookiesError"),
        Map.entry(Code.AddEntryQuorumTimeoutException, "AddQuorumTimeoutError"),
        Map.entry(Code.MetadataVersionException, "MetadataConflictError"),
        Map.entry(Code.ZKException, "MetadataUnavailableError"),
        Map.entry(Code.MetaStoreException, "MetadataUnavailableError"),
        Map.entry(Code.BookieHandleNotAvailableException, "BookieUnavailableError"),
        Map.entry(Code.TimeoutException, "BookieUnavailableError"),
        Map.entry(Code.ReadException, "BookieUnavailableError"),
        Map.entry(Code.LedgerRecoveryException, "BookieUnavailableError"),
        Map.entry(Code.DataUnknownException, "BookieUnavailableError"));

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
