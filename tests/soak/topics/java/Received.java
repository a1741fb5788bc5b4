import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;

/**
 * A directory of the columns of messages, in the order in which they came. A file NAME has a column of numbers, 8 bytes each; a
 * pair NAME.sizes and NAME.data one of bytes: sizes of 4 bytes each, -1 for null. Properties are sorted by name.
 */
final class Received implements AutoCloseable {
    private static final int BUFFER = 1 << 16;

    private final File directory;
    private final Map<String, DataOutputStream> files = new TreeMap<>();

    Received(File directory) {
        this.directory = directory;
        directory.mkdirs();
    }

    void add(Message<byte[]> message) throws IOException {
        MessageIdAdv id = (MessageIdAdv) message.getMessageId();
        number("ledger_id", id.getLedgerId());
        number("entry_id", id.getEntryId());
        number("batch_index", id.getBatchIndex());
        number("publish_time", message.getPublishTime());
        number("event_time", message.getEventTime());
        number("sequence_id", message.getSequenceId());
        text("key", message.hasKey() ? message.getKey() : null);
        bytes("value", message.getData());
        text("topic", message.getTopicName());
        text("producer", message.getProducerName());
        bytes("ordering_key", message.hasOrderingKey() ? message.getOrderingKey() : null);
        number("properties", message.getProperties().size());
        for (Map.Entry<String, String> one : new TreeMap<>(message.getProperties()).entrySet()) {
            text("property_name", one.getKey());
            text("property_value", one.getValue());
        }
    }

    @Override
    public void close() throws IOException {
        for (DataOutputStream file : files.values()) {
            file.close();
        }
    }

    private void number(String name, long value) throws IOException {
        file(name).writeLong(value);
    }

    private void text(String name, String value) throws IOException {
        bytes(name, value == null ? null : value.getBytes(StandardCharsets.UTF_8));
    }

    private void bytes(String name, byte[] value) throws IOException {
        file(name + ".sizes").writeInt(value == null ? -1 : value.length);
        file(name + ".data").write(value == null ? new byte[0] : value);
    }

    private DataOutputStream file(String name) throws IOException {
        DataOutputStream file = files.get(name);
        if (file == null) {
            file = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(new File(directory, name)), BUFFER));
            files.put(name, file);
        }
        return file;
    }
}
