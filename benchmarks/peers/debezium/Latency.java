import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.PrintStream;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Prints the key of each row that Debezium's engine hands over, and the monotonic clock's time.
 *
 * <p>Arguments are the connector's properties, as NAME=VALUE.
 */
final class Latency {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            properties.setProperty(pair[0], pair[1]);
        }
        PrintStream out = System.out;
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine =
                DebeziumEngine.create(Connect.class)
                        .using(properties)
                        .using((success, message, error) -> {
                            if (!success) {
                                System.err.println(message + " " + error);
                                System.exit(1);
                            }
                        })
                        .notifying(event -> {
                            long now = System.nanoTime();
                            Struct row = ((Struct) event.value().value()).getStruct("after");
                            out.println(row.getInt64("k") + " " + now);
                            out.flush();
                        })
                        .build();
        engine.run();
    }
}
