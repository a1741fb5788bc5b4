package apachesuite;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import java.io.File;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.BookieStateManager;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.StateManager;
import org.apache.bookkeeper.proto.BookieServer;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

/**
 * Stand-ins for the server's objects that tests take in hand to stop a bookie, or to make its disks full.
 *
 * <p>They do to the process what a test does to the object. Whatever else a test asks of them is an error: it needs a bookie in
 * its own JVM.
 */
final class Handles {
    private final ExternalBookie bookie;
    private final Set<File> full = ConcurrentHashMap.newKeySet();
    private final BookieServer server;
    private final Bookie core;
    private final StateManager state;
    private final LedgerDirsManager directories;

    Handles(ExternalBookie bookie) {
        this.bookie = bookie;
        directories = handle(LedgerDirsManager.class, this::askDirectories);
        state = handle(BookieStateManager.class, this::askState);
        core = handle(BookieImpl.class, this::askBookie);
        server = handle(BookieServer.class, this::askServer);
    }

    BookieServer server() {
        return server;
    }

    private static <T> T handle(Class<T> type, Answer<Object> answer) {
        return mock(type, withSettings().stubOnly().defaultAnswer(answer));
    }

    private Object askServer(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "getBookieId":
                return bookie.bookieId();
            case "getLocalAddress":
                return bookie.address();
            case "getBookie":
                return core;
            case "isRunning":
            case "isBookieRunning":
                return bookie.isRunning();
            case "shutdown":
                bookie.shutdown();
                return null;
            case "suspendProcessing":
                bookie.suspend();
                return null;
            case "resumeProcessing":
                bookie.resume();
                return null;
            case "toString":
                return "external bookie " + bookie.bookieId();
            default:
                throw unknown(call);
        }
    }

    private Object askBookie(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "getStateManager":
                return state;
            case "getLedgerDirsManager":
                return directories;
            case "isRunning":
            case "isAlive":
                return bookie.isRunning();
            case "isReadOnly":
                return bookie.isReadOnly();
            case "shutdown":
                bookie.shutdown();
                return 0;
            default:
                throw unknown(call);
        }
    }

    private Object askState(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "transitionToReadOnlyMode":
            case "doTransitionToReadOnlyMode":
                bookie.setReadOnly(true);
                break;
            case "transitionToWritableMode":
            case "doTransitionToWritableMode":
                bookie.setReadOnly(false);
                break;
            case "isReadOnly":
                return bookie.isReadOnly();
            case "isRunning":
                return bookie.isRunning();
            default:
                throw unknown(call);
        }
        return call.getMethod().getReturnType() == void.class ? null : CompletableFuture.completedFuture(null);
    }

    private Object askDirectories(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "addToFilledDirs":
                full.add(call.getArgument(0));
                break;
            case "addToWritableDirs":
                full.remove(call.getArgument(0));
                break;
            default:
                throw unknown(call);
        }
        bookie.setReadOnly(full.size() >= bookie.configuration().getLedgerDirs().length);
        return null;
    }

    private static RuntimeException unknown(InvocationOnMock call) {
        return new UnsupportedOperationException("an external bookie has no " + call.getMethod());
    }
}
