import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.flight.AsyncPutListener;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.auth2.BearerCredentialWriter;
import org.apache.arrow.flight.grpc.CredentialCallOption;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.impl.UnionListWriter;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** Appends rows to a log through a gateway, or reads them. The token is in GATEWAY_TOKEN, the file of the authority in GATEWAY_CA. */
public final class GatewayClient {
    private static final String USAGE = "usage: GatewayClient URI append LOG NUMBER | GatewayClient URI read LOG";
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final Schema RIDES = new Schema(List.of(
            Field.nullable("ride", new ArrowType.Int(64, true)),
            Field.nullable("km", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE)),
            Field.nullable("city", new ArrowType.Utf8()),
            Field.nullable("began", new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC")),
            Field.nullable("fare", new ArrowType.Decimal(10, 2, 128)),
            list("stops", list("item", Field.nullable("item", new ArrowType.Int(64, true))))));

    private final BufferAllocator allocator;
    private final FlightClient client;
    private final CallOption token;

    private GatewayClient(BufferAllocator allocator, FlightClient client, String token) {
        this.allocator = allocator;
        this.client = client;
        this.token = new CredentialCallOption(new BearerCredentialWriter(token));
    }

    public static void main(String[] args) throws Exception {
        boolean appends = args.length == 4 && args[1].equals("append");
        if (!appends && !(args.length == 3 && args[1].equals("read"))) {
            System.err.println(USAGE);
            System.exit(2);
        }
        try (BufferAllocator allocator = new RootAllocator();
                FlightClient client = connect(allocator, args[0])) {
            GatewayClient gateway = new GatewayClient(allocator, client, System.getenv().getOrDefault("GATEWAY_TOKEN", ""));
            if (appends) {
                System.out.println(gateway.append(args[2], Long.parseLong(args[3])));
            } else {
                gateway.read(args[2]);
            }
        } catch (FlightRuntimeException problem) {
            System.err.println(problem.status().code() + ": " + problem.status().description());
            System.exit(1);
        }
    }

    private static FlightClient connect(BufferAllocator allocator, String uri) throws Exception {
        FlightClient.Builder builder = FlightClient.builder(allocator, new Location(uri));
        String authority = System.getenv("GATEWAY_CA");
        if (authority != null) {
            builder.trustedCertificates(new ByteArrayInputStream(Files.readAllBytes(Path.of(authority))));
        }
        return builder.build();
    }

    /** One commit of three rows. Who repeats it with the same number appends nothing. Returns the gateway's answer. */
    private String append(String log, long number) throws Exception {
        try (VectorSchemaRoot rows = VectorSchemaRoot.create(RIDES, allocator)) {
            fill(rows, number);
            Map<String, Object> command =
                    Map.of("log", log, "rows", rows.getRowCount(), "application", List.of("java-example", number));
            Answer answer = new Answer();
            FlightClient.ClientStreamListener stream = client.startPut(descriptor(command), rows, answer, token);
            stream.putNext();
            stream.completed();
            stream.getResult();
            return answer.text;
        }
    }

    private static final class Answer extends AsyncPutListener {
        private volatile String text;

        @Override
        public void onNext(PutResult result) {
            byte[] body = new byte[(int) result.getApplicationMetadata().readableBytes()];
            result.getApplicationMetadata().getBytes(0, body);
            text = new String(body, StandardCharsets.UTF_8);
        }
    }

    /** Two rides, and one of which nothing is known but its number. */
    private static void fill(VectorSchemaRoot rows, long number) {
        BigIntVector ride = (BigIntVector) rows.getVector("ride");
        Float8Vector km = (Float8Vector) rows.getVector("km");
        VarCharVector city = (VarCharVector) rows.getVector("city");
        TimeStampMicroTZVector began = (TimeStampMicroTZVector) rows.getVector("began");
        DecimalVector fare = (DecimalVector) rows.getVector("fare");
        UnionListWriter stops = ((ListVector) rows.getVector("stops")).getWriter();
        Instant noon = Instant.parse("2026-01-31T12:00:00Z");
        for (int i = 0; i < 2; i++) {
            long id = 10 * number + i;
            ride.setSafe(i, id);
            km.setSafe(i, id + 0.5);
            city.setSafe(i, (i == 0 ? "Rome" : "Tromsø").getBytes(StandardCharsets.UTF_8));
            began.setSafe(i, noon.plusSeconds(60 * id).getEpochSecond() * 1_000_000);
            fare.setSafe(i, BigDecimal.valueOf(100 * id + 25, 2));
            stops.setPosition(i);
            stops.startList();
            stops.list().startList();
            stops.list().bigInt().writeBigInt(id);
            stops.list().bigInt().writeNull();
            stops.list().endList();
            stops.list().startList();
            stops.list().endList();
            stops.endList();
        }
        ride.setSafe(2, 10 * number + 2);
        rows.setRowCount(3);
    }

    /** Prints each row of the log as a line of JSON. The tickets are parts of one version: other threads or machines may take some. */
    private void read(String log) throws Exception {
        for (FlightEndpoint part : client.getInfo(descriptor(Map.of("log", log, "endpoints", 4)), token).getEndpoints()) {
            try (FlightStream stream = client.getStream(part.getTicket(), token)) {
                while (stream.next()) {
                    print(stream.getRoot());
                }
            }
        }
    }

    private static void print(VectorSchemaRoot rows) throws Exception {
        for (int i = 0; i < rows.getRowCount(); i++) {
            Map<String, Object> row = new LinkedHashMap<>();
            for (FieldVector column : rows.getFieldVectors()) {
                row.put(column.getName(), value(column, i));
            }
            System.out.println(JSON.writeValueAsString(row));
        }
    }

    private static Object value(FieldVector column, int row) {
        Object value = column.getObject(row);
        if (value != null && column instanceof TimeStampMicroTZVector) {
            long micros = (long) value;
            return Instant.ofEpochSecond(Math.floorDiv(micros, 1_000_000), 1000 * Math.floorMod(micros, 1_000_000)).toString();
        }
        return value;
    }

    private static FlightDescriptor descriptor(Map<String, Object> command) throws Exception {
        return FlightDescriptor.command(JSON.writeValueAsBytes(command));
    }

    private static Field list(String name, Field item) {
        return new Field(name, FieldType.nullable(new ArrowType.List()), List.of(item));
    }
}
