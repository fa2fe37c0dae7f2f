import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Collections;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.datastream.AsyncDataStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.async.RichAsyncFunction;
import org.apache.flink.util.CloseableIterator;

/** Calls a service for each row with Flink's orderedWait, once for each line of standard input. */
public final class Calls extends RichAsyncFunction<Long, Long> {
  private final String url;
  private transient HttpClient client;

  private Calls(String url) {
    this.url = url;
  }

  /** Expects the service's URL, the number of rows, and the calls in flight (0: Flink's default) as arguments. */
  public static void main(String[] args) throws Exception {
    int rows = Integer.parseInt(args[1]);
    int inFlight = Integer.parseInt(args[2]);
    BufferedReader turns = new BufferedReader(new InputStreamReader(System.in));
    while (turns.readLine() != null) {
      StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
      DataStream<Long> source = env.fromSequence(0, rows - 1);
      DataStream<Long> answers =
          inFlight == 0
              ? AsyncDataStream.orderedWait(source, new Calls(args[0]), 60, TimeUnit.SECONDS)
              : AsyncDataStream.orderedWait(
                  source, new Calls(args[0]), 60, TimeUnit.SECONDS, inFlight);
      int found = 0;
      try (CloseableIterator<Long> iterator = answers.executeAndCollect()) {
        while (iterator.hasNext()) {
          iterator.next();
          found++;
        }
      }
      if (found != rows) {
        throw new IllegalStateException(found + " of " + rows + " rows");
      }
      System.out.println("done");
    }
    System.exit(0);
  }

  @Override
  public void open(OpenContext context) {
    client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  }

  @Override
  public void asyncInvoke(Long row, ResultFuture<Long> result) {
    HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/" + row)).build();
    client
        .sendAsync(request, HttpResponse.BodyHandlers.ofString())
        .whenComplete(
            (answer, error) ->
                result.complete(
                    Collections.singleton(error == null && answer.statusCode() == 200 ? row : -1L)));
  }
}
