import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Runs the guard for tests/clients/python/test_guard.py; guard_worker.py there says what this program reads and prints. */
public class GuardWorker implements Guard.Database {
    static final Map<String, String[][]> BREAKS = Map.of( // what `build` is broken with: commands before the keys are read
        "lost", new String[][] {{"UNLINK", Guard.NEW}},
        "anew", new String[][] {{"UNLINK", Guard.NEW}, {"BF.RESERVE", Guard.NEW, "0.001", "120000"}},
        "cut", new String[][] {{"CLIENT", "KILL", "TYPE", "normal"}});

    final String host;
    final int port;
    final Map<String, String> rows = new LinkedHashMap<>();
    final Guard guard;
    int asked = 0; // how often an absent row was asked for
    String[][] commands = {};

    GuardWorker(URI url) {
        host = url.getHost();
        port = url.getPort();
        guard = new Guard(host, port, this);
        for (int i = 0; i < 2000; i++) rows.put("user:" + i, "name " + i);
    }

    public String get(String key) {
        if (key.startsWith("absent")) asked++;
        return rows.get(key);
    }

    public void insert(String key, String value) {
        rows.put(key, value);
    }

    public List<String> keys() {
        for (String[] words : commands) {
            try (var redis = new Connection(host, port, 10_000)) {
                redis.send((Object[]) words);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        return new ArrayList<>(rows.keySet());
    }

    /** Five lookups of rows that exist and twenty of rows that do not. */
    String round(int number) {
        List<String> keys = new ArrayList<>(rows.keySet());
        int before = asked;
        List<String> present = new ArrayList<>(List.of(keys.get(keys.size() - 1)));
        for (int i = 0; i < 4; i++) present.add(keys.get((number * 4 + i) % keys.size()));
        present.removeIf(key -> guard.lookup(key) != null);
        for (int i = 0; i < 20; i++)
            if (guard.lookup("absent:" + number + ":" + i) != null) throw new IllegalStateException("found what is not there");
        return present.isEmpty() ? asked - before + " " + guard.failures : "hidden " + String.join(" ", present);
    }

    String answer(String line, int number) throws Exception {
        String[] words = line.split(" ");
        switch (words[0]) {
            case "build":
                commands = words.length > 1 ? BREAKS.get(words[1]) : new String[][] {};
                Guard.build(host, port, this, 0);
                return "ok";
            case "insert":
                guard.insert(words[1], "inserted " + words[1]);
                return "ok";
            default: return round(number);
        }
    }

    public static void main(String[] arguments) throws IOException {
        var worker = new GuardWorker(URI.create(arguments[0]));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        int number = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = worker.answer(line, number++);
            } catch (Exception error) {
                answer = "raised " + error;
            }
            System.out.println(answer);
        }
    }
}
