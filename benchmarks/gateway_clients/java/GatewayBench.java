import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.arrow.flight.AsyncPutListener;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** URI append|read|check LOG ROWS COMMITS: prints the seconds from the first call to the last answer. The rows are those of rows.py. */
public final class GatewayBench {
    private static final int BATCH_ROWS = 65_536;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Schema SCHEMA = new Schema(List.of(
            Field.nullable("id", new ArrowType.Int(64, true)),
            Field.nullable("day", new ArrowType.Int(32, true)),
            Field.nullable("amount", new ArrowType.Int(64, true)),
            Field.nullable("price", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE)),
            Field.nullable("name", new ArrowType.Utf8())));
    private static final byte[][] NAMES = new byte[1000][];

    static {
        for (int i = 0; i < NAMES.length; i++) {
            NAMES[i] = String.format("customer %07d", 997 * i).getBytes(StandardCharsets.UTF_8);
        }
    }

    private final BufferAllocator allocator;
    private final FlightClient client;
    private final String log;

    private GatewayBench(BufferAllocator allocator, FlightClient client, String log) {
        this.allocator = allocator;
        this.client = client;
        this.log = log;
    }

    public static void main(String[] args) throws Exception {
        long rows = Long.parseLong(args[3]);
        int commits = Integer.parseInt(args[4]);
        try (BufferAllocator allocator = new RootAllocator();
                FlightClient client = FlightClient.builder(allocator, new Location(args[0])).build()) {
            GatewayBench bench = new GatewayBench(allocator, client, args[2]);
            double seconds = args[1].equals("append") ? bench.append(rows, commits) : bench.read(rows, args[1].equals("check"));
            System.out.println(seconds);
        }
    }

    private double append(long rows, int commits) throws Exception {
        List<List<ArrowRecordBatch>> parts = new ArrayList<>();
        try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator)) {
            long each = rows / commits;
            for (int commit = 0; commit < commits; commit++) {
                parts.add(made(root, commit * each, each));
            }
        }
        long began = System.nanoTime();
        for (List<ArrowRecordBatch> part : parts) {
            put(part);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        parts.forEach(part -> part.forEach(ArrowRecordBatch::close));
        return seconds;
    }

    private static List<ArrowRecordBatch> made(VectorSchemaRoot root, long first, long count) {
        List<ArrowRecordBatch> batches = new ArrayList<>();
        for (long done = 0; done < count; done += BATCH_ROWS) {
            root.allocateNew();
            fill(root, first + done, (int) Math.min(BATCH_ROWS, count - done));
            batches.add(new VectorUnloader(root).getRecordBatch());
        }
        return batches;
    }

    private static void fill(VectorSchemaRoot root, long first, int count) {
        BigIntVector id = (BigIntVector) root.getVector("id");
        IntVector day = (IntVector) root.getVector("day");
        BigIntVector amount = (BigIntVector) root.getVector("amount");
        Float8Vector price = (Float8Vector) root.getVector("price");
        VarCharVector name = (VarCharVector) root.getVector("name");
        for (int i = 0; i < count; i++) {
            long row = first + i;
            long mixed = mixed(row);
            id.setSafe(i, row);
            day.setSafe(i, (int) (row / 1000 % 365));
            amount.setSafe(i, (mixed >>> 40) % 100_000);
            price.setSafe(i, (mixed >>> 11) * 0x1p-53);
            name.setSafe(i, NAMES[(int) ((mixed >>> 32) % 1000)]);
        }
        root.setRowCount(count);
    }

    private static long mixed(long row) {
        return row * 0x9E3779B97F4A7C15L;
    }

    private void put(List<ArrowRecordBatch> part) throws Exception {
        long rows = part.stream().mapToLong(ArrowRecordBatch::getLength).sum();
        try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator)) {
            VectorLoader loader = new VectorLoader(root);
            Map<String, Object> command = new HashMap<>(Map.of("log", log, "create", true, "rows", rows));
            FlightDescriptor descriptor = FlightDescriptor.command(JSON.writeValueAsBytes(command));
            FlightClient.ClientStreamListener stream = client.startPut(descriptor, root, new AsyncPutListener());
            for (ArrowRecordBatch batch : part) {
                while (!stream.isReady()) { // otherwise all of it would wait in this process
                    LockSupport.parkNanos(100_000);
                }
                loader.load(batch);
                stream.putNext();
            }
            stream.completed();
            stream.getResult();
        }
    }

    private double read(long rows, boolean checks) throws Exception {
        long began = System.nanoTime();
        long found = 0;
        FlightDescriptor descriptor = FlightDescriptor.command(JSON.writeValueAsBytes(Map.of("log", log)));
        for (FlightEndpoint part : client.getInfo(descriptor).getEndpoints()) {
            try (FlightStream stream = client.getStream(part.getTicket())) {
                while (stream.next()) {
                    if (checks) {
                        check(stream.getRoot(), found);
                    }
                    found += stream.getRoot().getRowCount();
                }
            }
        }
        if (found != rows) {
            throw new IllegalStateException(found + " rows came of " + rows);
        }
        return (System.nanoTime() - began) / 1e9;
    }

    private static void check(VectorSchemaRoot root, long first) {
        BigIntVector id = (BigIntVector) root.getVector("id");
        IntVector day = (IntVector) root.getVector("day");
        BigIntVector amount = (BigIntVector) root.getVector("amount");
        Float8Vector price = (Float8Vector) root.getVector("price");
        VarCharVector name = (VarCharVector) root.getVector("name");
        for (int i = 0; i < root.getRowCount(); i++) {
            long row = first + i;
            long mixed = mixed(row);
            boolean same = id.get(i) == row
                    && day.get(i) == (int) (row / 1000 % 365)
                    && amount.get(i) == (mixed >>> 40) % 100_000
                    && price.get(i) == (mixed >>> 11) * 0x1p-53
                    && java.util.Arrays.equals(name.get(i), NAMES[(int) ((mixed >>> 32) % 1000)]);
            if (!same) {
                throw new IllegalStateException("row " + row + " is another one");
            }
        }
    }
}
