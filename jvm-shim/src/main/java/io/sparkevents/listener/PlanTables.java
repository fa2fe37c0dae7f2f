package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.spark.sql.execution.SparkPlanInfo;
import scala.Option;

/**
 * The nodes of a physical plan that name tables and paths; {@code plan_tables.py} reads the names. A replay selects the
 * same nodes ({@code event_log/logged_plans.py}).
 */
final class PlanTables {
  /** Limits: nodes of a plan to visit, characters of all selected texts, and characters of one text. */
  private static final int MOST_NODES = 10_000;
  private static final int MOST_TEXT = 4_096;
  private static final int LONGEST = 512;

  private static final Pattern SCAN = Pattern.compile("(?:Batch)?Scan ");
  private static final Pattern WRITE =
      Pattern.compile("Execute |\\w*(?:Append|Overwrite|Replace|Write|AsSelect|Insert|DeleteFrom)");
  private static final String EXECUTE = "Execute ";
  private static final String ARGUMENTS = "\nArguments: ";

  private static final class Node {
    final String name;
    final String location;
    final String arguments;

    Node(String name, String location, String arguments) {
      this.name = name;
      this.location = location;
      this.arguments = arguments;
    }
  }

  private final List<Node> nodes = new ArrayList<>();
  private int left = MOST_TEXT;

  /**
   * Selects nodes, in the order from the root to the leaves.
   *
   * @param plan the root; null if Spark reports no plan
   * @param description the plan as Spark prints it, which alone contains the arguments of a command that is no write
   */
  PlanTables(SparkPlanInfo plan, String description) {
    Deque<SparkPlanInfo> waiting = new ArrayDeque<>();
    if (plan != null) {
      waiting.add(plan);
    }
    for (int visited = 0; !waiting.isEmpty() && left > 0 && visited < MOST_NODES; visited++) {
      SparkPlanInfo node = waiting.poll();
      String name = node.nodeName();
      if (SCAN.matcher(name).lookingAt()) {
        Option<String> location = node.metadata().get("Location");
        // A cached table has children, which are the plan that filled the cache.
        nodes.add(new Node(kept(name), location.isDefined() ? kept(location.get()) : "", ""));
        continue;
      }
      if (WRITE.matcher(name).lookingAt()) {
        String arguments = node.simpleString().startsWith(name) ? node.simpleString().substring(name.length()).trim() : "";
        boolean isCommand = arguments.isEmpty() && name.startsWith(EXECUTE);
        nodes.add(new Node(kept(name), "", kept(isCommand ? argumentsOf(name, description) : arguments)));
      }
      waiting.addAll(PlanTree.children(node));
    }
  }

  /** Returns the arguments of a command that is executed at once, which the description prints as a node of its own. */
  static String argumentsOf(String name, String description) {
    int command = description.indexOf(") " + name.substring(EXECUTE.length()) + "\n");
    int start = command < 0 ? -1 : description.indexOf(ARGUMENTS, command);
    int gap = command < 0 ? -1 : description.indexOf("\n\n", command);
    if (start < 0 || (gap >= 0 && gap < start)) {
      return "";
    }
    int end = description.indexOf('\n', start + 1);
    return description.substring(start + ARGUMENTS.length(), end < 0 ? description.length() : end);
  }

  private String kept(String text) {
    String kept = text.substring(0, Math.min(text.length(), Math.min(left, LONGEST)));
    left -= kept.length();
    return kept;
  }

  /** Returns the number of characters of all texts. */
  int length() {
    return MOST_TEXT - left;
  }

  /** Writes the field {@code plan}; secrets are redacted as in Spark. */
  void write(JsonGenerator json, Redaction redaction) throws IOException {
    json.writeArrayFieldStart("plan");
    for (Node node : nodes) {
      json.writeStartObject();
      Record.write(json, "name", redaction.redact("plan", node.name));
      if (!node.location.isEmpty()) {
        Record.write(json, "location", redaction.redact("plan", node.location));
      }
      if (!node.arguments.isEmpty()) {
        Record.write(json, "arguments", redaction.redact("plan", node.arguments));
      }
      json.writeEndObject();
    }
    json.writeEndArray();
  }
}
