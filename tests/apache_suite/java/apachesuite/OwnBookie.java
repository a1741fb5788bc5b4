package apachesuite;

import java.io.IOException;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieResources;
import org.apache.bookkeeper.bookie.MockUncleanShutdownDetection;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** A bookie that a test made to misbehave, and puts beside the external ones. It is the test's object, and runs in its JVM. */
public final class OwnBookie implements TestedBookie {
    private final ServerConfiguration conf;
    private final Bookie bookie;
    private final BookieServer server;
    private final BookieId bookieId;
    private final BookieSocketAddress address;

    public OwnBookie(ServerConfiguration conf, Bookie bookie) throws Exception {
        this.conf = conf;
        this.bookie = bookie;
        server = new BookieServer(conf, bookie, NullStatsLogger.INSTANCE, BookieResources.createAllocator(conf),
            new MockUncleanShutdownDetection());
        bookieId = server.getBookieId();
        address = server.getLocalAddress();
    }

    @Override
    public BookieId bookieId() {
        return bookieId;
    }

    @Override
    public BookieSocketAddress address() {
        return address;
    }

    @Override
    public ServerConfiguration configuration() {
        return conf;
    }

    @Override
    public BookieServer server() {
        return server;
    }

    @Override
    public void launch() throws Exception {
        server.start();
    }

    @Override
    public void awaitListening() {
        // It listens since launch() returned.
    }

    @Override
    public void checkAlive() throws IOException {
        if (!server.isRunning()) {
            throw new IOException("the test's own bookie " + bookieId + " does not run");
        }
    }

    @Override
    public void askToEnd() {
        // It ends as soon as it is told to, in shutdown().
    }

    @Override
    public void shutdown() {
        server.shutdown();
    }

    @Override
    public void suspend() {
        server.suspendProcessing();
    }

    @Override
    public void resume() {
        server.resumeProcessing();
    }

    @Override
    public void setReadOnly(boolean wanted) throws Exception {
        if (wanted) {
            bookie.getStateManager().transitionToReadOnlyMode().get();
        } else {
            bookie.getStateManager().transitionToWritableMode().get();
        }
    }
}
