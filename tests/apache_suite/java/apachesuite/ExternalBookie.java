package apachesuite;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.util.PortManager;

/**
 * A bookie in a process of its own.
 *
 * <p>The command that starts it is in the system property {@value #COMMAND}, a word a line. Its last argument is a JSON file
 * with the test's settings. The process reads commands from its input, a line each ({@code full}: behave as if all
 * disks were full; {@code free}: as before), and ends when its input does: so it never outlives this JVM.
 */
public final class ExternalBookie implements TestedBookie {
    public static final String COMMAND = "apachesuite.bookie";

    /** A bookie that is suspended keeps its place in the list of bookies for so long, as one that only ignores requests does. */
    private static final int SESSION_MS = 60_000;

    private static final Duration START = Duration.ofSeconds(180);
    private static final Duration STOP = Duration.ofSeconds(20);
    private static final int TAIL_LINES = 15;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<ExternalBookie> RUNNING = ConcurrentHashMap.newKeySet();

    private final ServerConfiguration conf;
    private final BookieSocketAddress address;
    private final BookieId bookieId;
    private final Path log;
    private final Handles handles;
    private final ReadOnlyCheck readOnly;
    private Process process;
    private boolean suspended;

    /** Whether the bookie is in the list of the read-only ones, and not in the other. */
    public interface ReadOnlyCheck {
        boolean isReadOnly() throws Exception;
    }

    /** Nothing runs yet. A port that the test leaves open is chosen now. */
    public ExternalBookie(ServerConfiguration conf, ReadOnlyCheck readOnly) throws IOException {
        if (conf.getBookiePort() == 0) {
            conf.setBookiePort(PortManager.nextFreePort());
        }
        this.conf = conf;
        address = BookieImpl.getBookieAddress(conf);
        bookieId = BookieImpl.getBookieId(conf);
        log = temporary("bookie-" + address.getPort() + ".log");
        this.readOnly = readOnly;
        handles = new Handles(this);
    }

    /** Kill what an earlier test left running because it ran out of time. */
    public static void killAll() {
        RUNNING.forEach(bookie -> bookie.process.destroyForcibly());
        RUNNING.clear();
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
        return handles.server();
    }

    public boolean isRunning() {
        return process != null && process.isAlive();
    }

    @Override
    public void launch() throws Exception {
        List<String> command = Arrays.stream(System.getProperty(COMMAND).split("\n")).collect(Collectors.toList());
        command.add(writeSettings().toString());
        process = new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
            .start();
        RUNNING.add(this);
    }

    @Override
    public void awaitListening() throws IOException, InterruptedException {
        long deadline = System.nanoTime() + START.toNanos();
        while (!accepts()) {
            checkAlive();
            if (System.nanoTime() > deadline) {
                throw new IOException("bookie " + bookieId + " does not listen: " + tail());
            }
            Thread.sleep(20);
        }
    }

    @Override
    public void checkAlive() throws IOException {
        if (!isRunning()) {
            throw new IOException("bookie " + bookieId + " does not run: " + tail());
        }
    }

    @Override
    public void askToEnd() {
        if (isRunning()) {
            process.destroy();
            resume();
        }
    }

    @Override
    public void shutdown() throws InterruptedException {
        askToEnd();
        if (process != null && !process.waitFor(STOP.toSeconds(), TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor();
        }
        RUNNING.remove(this);
    }

    @Override
    public synchronized void suspend() {
        signal("STOP");
        suspended = true;
    }

    @Override
    public synchronized void resume() {
        if (suspended) {
            signal("CONT");
            suspended = false;
        }
    }

    public boolean isReadOnly() throws Exception {
        return readOnly.isReadOnly();
    }

    @Override
    public void setReadOnly(boolean wanted) throws Exception {
        tell(wanted ? "full" : "free");
        // One that was started as read-only never takes adds, so nobody waits for it.
        while (wanted && isRunning() && !isReadOnly()) {
            Thread.sleep(20);
        }
    }

    private void tell(String command) {
        try {
            OutputStream input = process.getOutputStream();
            input.write((command + "\n").getBytes(StandardCharsets.UTF_8));
            input.flush();
        } catch (IOException problem) {
            throw new IllegalStateException("bookie " + bookieId + " takes no commands: " + tail(), problem);
        }
    }

    private void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start().waitFor();
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        } catch (InterruptedException problem) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean accepts() {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(address.getHostName(), address.getPort()), 1000);
            return true;
        } catch (IOException refused) {
            return false;
        }
    }

    /** The test's settings as text, and what follows from them about the bookie. */
    private Path writeSettings() throws Exception {
        Map<String, String> settings = new TreeMap<>();
        for (Iterator<String> keys = conf.getKeys(); keys.hasNext();) {
            String key = keys.next();
            Object value = conf.getProperty(key);
            if (value != null) {
                settings.put(key, text(value));
            }
        }
        settings.putIfAbsent("zkTimeout", Integer.toString(SESSION_MS));
        String name = "bookie-" + address.getPort();
        Path file = temporary(name + ".json");
        JSON.writeValue(file.toFile(), Map.of(
            "tls", conf.getTLSProviderFactoryClass() == null ? Map.of() : Pem.files(conf, temporary(name + "-").toString()),
            "bookie_id", bookieId.toString(),
            "host", address.getHostName(),
            "port", address.getPort(),
            "settings", settings));
        return file;
    }

    private static String text(Object value) {
        if (value instanceof Iterable<?> values) {
            StringBuilder joined = new StringBuilder();
            values.forEach(one -> joined.append(joined.length() == 0 ? "" : ",").append(one));
            return joined.toString();
        }
        return String.valueOf(value);
    }

    private static Path temporary(String name) {
        return new File(System.getProperty("java.io.tmpdir"), name).toPath();
    }

    private String tail() {
        try {
            List<String> lines = Files.readAllLines(log, StandardCharsets.ISO_8859_1);
            return String.join(" | ", lines.subList(Math.max(0, lines.size() - TAIL_LINES), lines.size()));
        } catch (IOException unreadable) {
            return "it has no log";
        }
    }
}
