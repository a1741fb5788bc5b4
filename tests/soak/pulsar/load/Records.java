import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;

/** A file of messages in the order in which they came, 32 bytes each: key, sequence, partition, batch index; ledger, entry. */
final class Records implements AutoCloseable {
    private final DataOutputStream out;
    private long count;

    Records(File file) throws IOException {
        file.getParentFile().mkdirs();
        out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file)));
    }

    synchronized void add(int key, int sequence, MessageId id) {
        MessageIdAdv at = (MessageIdAdv) id;
        try {
            out.writeInt(key);
            out.writeInt(sequence);
            out.writeInt(at.getPartitionIndex());
            out.writeInt(at.getBatchIndex());
            out.writeLong(at.getLedgerId());
            out.writeLong(at.getEntryId());
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
        count++;
    }

    synchronized long count() {
        return count;
    }

    @Override
    public synchronized void close() throws IOException {
        out.close();
    }
}
