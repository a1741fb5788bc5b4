package apachesuite;

import java.io.IOException;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;

/** A bookie of the tests' cluster, wherever it runs. */
public interface TestedBookie {
    BookieId bookieId();

    BookieSocketAddress address();

    ServerConfiguration configuration();

    /** What a test takes for the bookie's server. */
    BookieServer server();

    /** Begin to start it; it need not be there yet when this returns. */
    void launch() throws Exception;

    /** Wait until it accepts connections. Throws IOException if it ended instead. */
    void awaitListening() throws IOException, InterruptedException;

    /** Throws IOException, which says why, unless it runs. */
    void checkAlive() throws IOException;

    /** Have it end in good order, and do not wait. */
    void askToEnd();

    /** Have it end in good order, and wait. */
    void shutdown() throws InterruptedException;

    /** It keeps its connections, and answers nothing. */
    void suspend();

    void resume();

    /** Have the bookie refuse adds, and wait until it is listed so or ends over it; or let it take them again. */
    void setReadOnly(boolean wanted) throws Exception;
}
