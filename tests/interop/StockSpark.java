import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.util.Map;
import java.util.Scanner;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * A Spark session with Iceberg's runtime, without anything of ours. Started with settings of Spark, as KEY=VALUE. Commands come one a
 * line; for each, one line of JSON goes out, {"error": TEXT} where Spark refuses it:
 *
 * <pre>
 * run SQL                {}
 * save DIRECTORY SQL     {}, once the rows are in files of Parquet in the directory
 * </pre>
 */
public final class StockSpark {
    public static void main(String[] settings) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        SparkSession.Builder builder = SparkSession.builder().master("local[2]");
        for (String one : settings) {
            builder.config(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        }
        ObjectMapper json = new ObjectMapper();
        try (SparkSession spark = builder.getOrCreate(); Scanner commands = new Scanner(System.in)) {
            while (commands.hasNextLine()) {
                answers.println(json.writeValueAsString(carriedOut(spark, commands.nextLine())));
            }
        }
        System.exit(0);
    }

    private static Map<String, String> carriedOut(SparkSession spark, String command) {
        try {
            if (command.startsWith("save ")) {
                String[] words = command.split(" ", 3);
                spark.sql(words[2]).coalesce(1).write().parquet(words[1]);
            } else {
                spark.sql(command.substring("run ".length()));
            }
            return Map.of();
        } catch (Exception problem) {
            return Map.of("error", problem.toString());
        }
    }
}
