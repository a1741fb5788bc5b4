package chaosagent;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;

/** Tells events to a file, each with one write, as history.Recorder. System.nanoTime() is CLOCK_MONOTONIC on Linux. */
final class History implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int DIGEST_BYTES = 8;

    private final String who;
    private final OutputStream file;

    History(Path path, String who) throws IOException {
        this.who = who;
        this.file = new FileOutputStream(path.toFile(), true);
    }

    /** The event's kind and facts are those of history.py. */
    synchronized void record(String kind, Map<String, ?> facts) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("at_ns", System.nanoTime());
        event.put("who", who);
        event.put("kind", kind);
        event.put("facts", facts);
        try {
            byte[] line = JSON.writeValueAsBytes(event);
            byte[] whole = Arrays.copyOf(line, line.length + 1);
            whole[line.length] = '\n';
            file.write(whole);
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }

    @Override
    public void close() throws IOException {
        file.close();
    }

    /** As history.digest. */
    static String digest(byte[] payload) {
        try {
            byte[] whole = MessageDigest.getInstance("SHA-256").digest(payload);
            return HexFormat.of().formatHex(whole, 0, DIGEST_BYTES);
        } catch (NoSuchAlgorithmException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
