package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.Record;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.Map;

/** The first line that is said to Python, whether it runs beside the driver or is the driver's own. */
public final class HelloMessage {
  private static final int PROTOCOL = 1;

  private HelloMessage() {}

  /**
   * @param sequence the number of the next event
   * @param restarts how many sidecars there were before
   * @param before what their reporters had counted
   */
  public static byte[] line(
      Settings settings, String application, long sequence, int restarts, Map<String, Map<String, Long>> before)
      throws IOException {
    return Record.json(
        json -> {
          json.writeStringField("kind", "hello");
          json.writeNumberField("protocol", PROTOCOL);
          json.writeStringField("application", application);
          json.writeNumberField("sequence", sequence);
          json.writeNumberField("restarts", restarts);
          json.writeNumberField("driver", process());
          json.writeObjectFieldStart("before");
          for (Map.Entry<String, Map<String, Long>> reporter : before.entrySet()) {
            json.writeObjectFieldStart(reporter.getKey());
            for (Map.Entry<String, Long> count : reporter.getValue().entrySet()) {
              json.writeNumberField(count.getKey(), count.getValue());
            }
            json.writeEndObject();
          }
          json.writeEndObject();
          json.writeArrayFieldStart("settings");
          for (Settings.Setting setting : settings.all()) {
            json.writeStartObject();
            json.writeStringField("key", setting.givenKey);
            json.writeStringField("value", setting.value);
            json.writeStringField("origin", setting.origin);
            json.writeEndObject();
          }
          json.writeEndArray();
        });
  }

  /** Of this JVM: its number, where it is known; Java 8 has no other way to ask. */
  private static long process() {
    try {
      return Long.parseLong(ManagementFactory.getRuntimeMXBean().getName().split("@")[0]);
    } catch (RuntimeException | LinkageError unknown) {
      return 0;
    }
  }
}
