package chaosagent;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.bookkeeper.client.BookKeeper;

/**
 * A client process of the chaos test with Apache BookKeeper's Java client: the commands, answers and events of agent.py.
 *
 * <p>Started with the metadata URI, the version of the wire protocol that it speaks, 2 or 3, and settings as JSON (java_agents.py).
 */
public final class Agent {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final BookKeeper client;
    private final Settings settings;
    private final PrintStream answers;
    private final Map<Long, Stop> stops = new ConcurrentHashMap<>();

    private Agent(BookKeeper client, Settings settings, PrintStream answers) {
        this.client = client;
        this.settings = settings;
        this.answers = answers;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Settings settings = JSON.readValue(arguments[2], Settings.class);
        BookKeeper client = new BookKeeper(settings.configuration(arguments[0], arguments[1].equals("2")));
        Agent agent = new Agent(client, settings, answers);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            agent.obey(JSON.readTree(line));
        }
        Runtime.getRuntime().halt(0);
    }

    private void obey(JsonNode command) {
        if (command.has("stop")) {
            stops.get(command.get("stop").asLong()).set();
            return;
        }
        Stop stop = new Stop();
        stops.put(command.get("call").asLong(), stop);
        new Thread(() -> carryOut(command, stop)).start();
    }

    private void carryOut(JsonNode command, Stop stop) {
        String problem = null;
        try (History history = new History(Path.of(command.get("file").asText()), command.get("who").asText())) {
            run(command, history, stop);
        } catch (Throwable found) { // the round's thread raises it again
            StringWriter text = new StringWriter();
            found.printStackTrace(new PrintWriter(text));
            problem = text.toString();
        }
        answer(command, "problem", problem);
    }

    private void run(JsonNode command, History history, Stop stop) throws Exception {
        switch (command.get("task").asText()) {
            case "write":
                write(command, history, stop);
                break;
            case "recover":
                new Reader(client, history, command.get("ledger_id").asLong()).recover(stop);
                break;
            case "read":
                new Reader(client, history, command.get("ledger_id").asLong()).readAll(stop);
                break;
            case "follow":
                WriterFile writer = new WriterFile(Path.of(command.get("writer_file").asText()));
                new Follower(client, history, command.get("ledger_id").asLong(), writer).follow(stop);
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private void write(JsonNode command, History history, Stop stop) throws Exception {
        Writer writer = new Writer(client, history, JSON.treeToValue(command.get("load"), Load.class), settings);
        answer(command, "ledger_id", writer.create(stop));
        writer.write(stop);
        String end = command.get("end").asText();
        if (end.equals("closed early")) {
            writer.close();
        }
        writer.awaitAnswers();
        if (end.equals("closed")) {
            writer.close();
        }
    }

    private synchronized void answer(JsonNode command, String name, Object value) {
        Map<String, Object> facts = new HashMap<>();
        facts.put("call", command.get("call").asLong());
        facts.put(name, value);
        try {
            answers.println(JSON.writeValueAsString(facts));
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
        answers.flush();
    }
}
