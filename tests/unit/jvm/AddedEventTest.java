package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.listener.AddedEvent;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

/** Tests of events that the user's program adds, as JSON or with the builder. */
final class AddedEventTest {
  /** The sidecar receives an added event unchanged on one line. Text that is not one JSON object is rejected. */
  @Test
  void addedEventsAreSentUnchanged() throws Exception {
    String event = "{\"id\":\"1\",\"name\":\"A\",\"attributes\":{\"text\":\"a\\nb\"}}";
    String line = new String(new AddedEvent(event + "\n").record().line(), "UTF-8");
    is(line.indexOf('\n'), line.length() - 1);
    is(line.endsWith("\"event\":" + event + "}\n"), true);
    is(Events.add(event), false); // no application is running
    for (String none : Arrays.asList("", "[]", "{", "{} {}", "1", "nonsense")) {
      try {
        Events.add(none);
        throw new AssertionError("taken: " + none);
      } catch (IllegalArgumentException refused) {
        is(refused.getMessage().startsWith("event: "), true);
      }
    }
  }

  /** The builder immediately rejects an invalid value, and the message contains the value. */
  @Test
  void builderRejectsInvalidValues() {
    is(Events.builder("shop", "Opened").attribute("people", 3).severity("WARN").body("open").observedAt(1).add(), false);
    refused("classScope: given  ", () -> Events.builder(" ", "Opened"));
    refused("name: given null", () -> Events.builder("shop", null));
    refused("severity: given LOUD, expected one of [TRACE", () -> Events.builder("a", "b").severity("LOUD"));
    refused("observedAt: given -1", () -> Events.builder("a", "b").observedAt(-1));
    refused("attribute key: given ", () -> Events.builder("a", "b").attribute("", 1));
    for (Object wrong : new Object[] {null, new int[0], Double.NaN, Float.POSITIVE_INFINITY, 'c', new Object()}) {
      refused("attribute door: given " + wrong, () -> Events.builder("a", "b").attribute("door", wrong));
    }
    for (Object right : new Object[] {"", true, 1, 2L, (short) 3, (byte) 4, 0.5, 0.25f}) {
      is(Events.builder("a", "b").attribute("door", right).add(), false);
    }
  }

  static void refused(String why, Runnable call) {
    try {
      call.run();
    } catch (IllegalArgumentException refusal) {
      is(refusal.getMessage().startsWith(why), true);
      return;
    }
    throw new AssertionError("taken, though " + why);
  }
}
