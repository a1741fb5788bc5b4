package apachesuite;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/** One of Apache's own bookies as a process, to find out what the tests say of the harness rather than of a bookie. */
public final class ApacheBookie {
    private ApacheBookie() {
    }

    public static void main(String[] arguments) throws Exception {
        EmbeddedServer server = EmbeddedServer.builder(new BookieConfiguration(settings(new File(arguments[0])))).build();
        Runtime.getRuntime().addShutdownHook(new Thread(server.getLifecycleComponentStack()::close));
        server.getLifecycleComponentStack().start();
        BookieImpl bookie = (BookieImpl) server.getBookieService().getServer().getBookie();
        watchForEnd(bookie);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            obey(bookie, command);
        }
        System.exit(0);
    }

    /** Auto recovery runs in the tests' JVM, so that they find it there. */
    private static ServerConfiguration settings(File file) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        JsonNode settings = new ObjectMapper().readTree(file).get("settings");
        settings.fields().forEachRemaining(one -> conf.setProperty(one.getKey(), one.getValue().asText()));
        conf.setAutoRecoveryDaemonEnabled(false);
        return conf;
    }

    /** A bookie that ends by itself, over full disks for one, leaves its process running. */
    private static void watchForEnd(BookieImpl bookie) {
        Thread watcher = new Thread(() -> {
            try {
                while (bookie.isRunning()) {
                    Thread.sleep(100);
                }
            } catch (InterruptedException impossible) {
                Thread.currentThread().interrupt();
            }
            System.exit(bookie.getExitCode());
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static void obey(BookieImpl bookie, String command) {
        if (command.equals("full")) {
            bookie.getStateManager().transitionToReadOnlyMode();
        } else {
            bookie.getStateManager().transitionToWritableMode();
        }
    }
}
