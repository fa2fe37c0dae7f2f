package io.sparkevents.listener;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.execution.SparkPlanInfo;

/**
 * A node of a physical plan that writes, and the values of its metrics.
 *
 * <p>The write is the first node of the plan. A statement with several insertions has one write for each child of a
 * union. A replay has the same rules ({@code event_log/write_commands.py}).
 */
final class WriteCommand {
  /** Maximum number of nodes above the write, such as that of adaptive execution. */
  private static final int DEEPEST = 8;
  /** Maximum number of insertions of a statement. */
  private static final int MOST = 64;

  private static final Pattern COMMAND = Pattern.compile("Execute ");
  /** Commands of connectors of the older interface, which report no metrics of their own. */
  private static final Pattern CONNECTOR =
      Pattern.compile("Execute (?:(?:Save|Insert)IntoDataSource|DeltaDynamicPartitionOverwrite)Command");
  private static final Pattern CREATES_TABLE =
      Pattern.compile("Execute \\w*AsSelectCommand|(?:Atomic)?(?:Create|Replace)\\w*AsSelect");
  /** The last part of a table's name, at the end of a command. */
  private static final Pattern TABLE = Pattern.compile("([^.`]+)`?$");
  private static final String IGNORE = ", Ignore";
  /** Arguments of a command that replaces a table. */
  private static final Pattern OVERWRITES = Pattern.compile("[^,]+, Overwrite\\b");
  private static final Pattern V2 =
      Pattern.compile(
          "AppendData|Overwrite(?:ByExpression|PartitionsDynamic)|ReplaceData|WriteDelta|DeleteFromTable"
              + "|(?:Atomic)?(?:Create|Replace)\\w*AsSelect");
  private static final String NO_WRITE = "NoopWrite";
  private static final String UNION = "Union";
  /** The node below a write that merges rows. */
  private static final String MERGE_ROWS = "MergeRows";
  /** Maximum number of nodes between a write and the node that merges its rows. */
  private static final int DEEPEST_MERGE = 32;
  /** Numbers of rows that tasks count, and not the driver. */
  private static final Pattern COUNTED_BY_TASKS =
      Pattern.compile("number of (?:target rows .+|(?:copied|deleted|inserted|updated) rows)");

  /** Whether a nested execution may be the write. */
  final boolean writesInside;
  /** The node with the arguments that tell what it writes. */
  final String text;
  /** If the command creates a table in which a nested execution writes: the command with the table; otherwise null. */
  final String created;
  /** The same with the mode, if it replaces the table. */
  final String creation;
  final Map<String, Long> values = new LinkedHashMap<>();
  /** Whether success means that data was written. */
  private final boolean writesIfSuccessful;
  private final Map<Long, String> names;
  /** The metrics that tasks count, by accumulator. */
  private final Map<Long, String> counts = new LinkedHashMap<>();

  private WriteCommand(SparkPlanInfo node, String description, boolean isAlone) {
    String name = node.nodeName();
    boolean isConnector = CONNECTOR.matcher(name).lookingAt();
    boolean isV2 = V2.matcher(name).lookingAt();
    boolean createsTable = CREATES_TABLE.matcher(name).lookingAt();
    writesInside = isConnector || createsTable;
    // The description names commands of one kind alike, so it does not tell which arguments are those of this one.
    String arguments = isAlone && writesInside && !isV2 ? PlanTables.argumentsOf(name, description) : "";
    Matcher overwrites = OVERWRITES.matcher(arguments);
    boolean replaces = !isConnector && overwrites.lookingAt();
    String shown = isConnector ? arguments : replaces ? overwrites.group() : "";
    text = Text.beginning((node.simpleString() + " " + shown).trim());
    if (createsTable && isV2) {
      created = text;
    } else {
      created = createsTable && !arguments.isEmpty() ? Text.beginning(name + " " + arguments.split(",", 2)[0]) : null;
    }
    creation = replaces ? text : created;
    boolean isKnown = isConnector && !arguments.isEmpty() && !arguments.endsWith(IGNORE);
    writesIfSuccessful = isKnown || isV2;
    names = PlanTree.metrics(node);
    if (isV2) {
      findCounts(node);
    }
  }

  /** Returns the writes of a plan; an empty list if it does not write. */
  static List<WriteCommand> in(SparkPlanInfo plan, String description) {
    List<SparkPlanInfo> nodes = nodes(plan);
    List<WriteCommand> found = new ArrayList<>();
    for (SparkPlanInfo node : nodes) {
      found.add(new WriteCommand(node, description, nodes.size() == 1));
    }
    return found;
  }

  /** Adaptive execution plans the writes again after each stage, and their metrics then have other accumulators. */
  static void planned(List<WriteCommand> writes, SparkPlanInfo plan) {
    List<SparkPlanInfo> nodes = nodes(plan);
    for (int index = 0; nodes.size() == writes.size() && index < nodes.size(); index++) {
      Map<Long, String> names = writes.get(index).names;
      names.clear();
      names.putAll(PlanTree.metrics(nodes.get(index)));
      if (V2.matcher(nodes.get(index).nodeName()).lookingAt()) {
        writes.get(index).findCounts(nodes.get(index));
      }
    }
  }

  private void findCounts(SparkPlanInfo write) {
    counts.clear();
    PlanTree.metrics(write).forEach(this::noteCount);
    List<SparkPlanInfo> children = PlanTree.children(write);
    for (int depth = 0; depth < DEEPEST_MERGE && children.size() == 1; depth++) {
      SparkPlanInfo node = children.get(0);
      if (MERGE_ROWS.equals(node.nodeName())) {
        PlanTree.metrics(node).forEach(this::noteCount);
        return;
      }
      children = PlanTree.children(node);
    }
  }

  private void noteCount(long accumulator, String name) {
    if (COUNTED_BY_TASKS.matcher(name).matches()) {
      counts.put(accumulator, name);
    }
  }

  /** Returns whether tasks count rows for this write. */
  boolean hasCounts() {
    return !counts.isEmpty();
  }

  /** Notes the value that a stage's tasks have counted, if the accumulator is one of this write. */
  void counted(long accumulator, long value) {
    String name = counts.get(accumulator);
    if (name != null) {
      values.put(name, value);
    }
  }

  /** Notes the value of a metric, if it is one of this write. */
  void updated(long accumulator, long value) {
    String name = names.get(accumulator);
    if (name != null) {
      values.put(name, value);
    }
  }

  /** Returns whether the plan of a command of the newer interface names the table that it creates, but not its path. */
  boolean createsWithoutPath() {
    return created != null && !COMMAND.matcher(created).lookingAt();
  }

  /** Returns whether the other command writes to the path of the table that this command creates. */
  boolean createsPathOf(WriteCommand write) {
    if (created == null || createsWithoutPath()) {
      return false;
    }
    Matcher table = TABLE.matcher(created);
    return table.find() && write.text.contains("/" + table.group(1).toLowerCase(Locale.ROOT) + ",");
  }

  boolean isDone() {
    return writesIfSuccessful || !values.isEmpty();
  }

  private static List<SparkPlanInfo> nodes(SparkPlanInfo plan) {
    List<SparkPlanInfo> found = new ArrayList<>();
    if (plan != null) {
      find(plan, 0, false, found);
    }
    return found;
  }

  private static void find(SparkPlanInfo node, int depth, boolean isInsideUnion, List<SparkPlanInfo> found) {
    if (isWrite(node)) {
      if (!node.simpleString().contains(NO_WRITE)) {
        found.add(node);
      }
      return;
    }
    List<SparkPlanInfo> children = PlanTree.children(node);
    boolean isUnion = UNION.equals(node.nodeName()) && !isInsideUnion;
    if (depth < DEEPEST && (children.size() == 1 || isUnion)) {
      for (SparkPlanInfo child : children.subList(0, Math.min(MOST, children.size()))) {
        find(child, depth + 1, isInsideUnion || isUnion, found);
      }
    }
  }

  private static boolean isWrite(SparkPlanInfo node) {
    return COMMAND.matcher(node.nodeName()).lookingAt() || V2.matcher(node.nodeName()).lookingAt();
  }
}
