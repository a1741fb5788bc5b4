package chaosagent;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** What the writer says itself: history.last_confirmed of its file. */
final class WriterFile {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Path path;
    private long position;
    private long lastConfirmed = -1;

    WriterFile(Path path) {
        this.path = path;
    }

    /** The highest entry that the writer was told to be confirmed, -1 for none. Reads what was added since the last call. */
    long lastConfirmed() throws IOException {
        byte[] added;
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "r")) {
            added = new byte[(int) (file.length() - position)];
            file.seek(position);
            file.readFully(added);
        }
        int begin = 0;
        for (int end = 0; end < added.length; end++) {
            if (added[end] == '\n') {
                take(JSON.readTree(new String(added, begin, end - begin, StandardCharsets.UTF_8)));
                begin = end + 1;
            }
        }
        position += begin;
        return lastConfirmed;
    }

    private void take(JsonNode event) {
        if (event.get("kind").asText().equals("confirmed")) {
            lastConfirmed = Math.max(lastConfirmed, event.get("facts").get("last").asLong());
        }
    }
}
