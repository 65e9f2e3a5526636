<?php
// Runs the guard for tests/clients/python/test_guard.py; guard_worker.py there says what this program reads and prints.

declare(strict_types=1);

require __DIR__ . '/../../../clients/examples/guard.php';

const NEW_FILTER = 'guard:{users}:new';
const BREAKS = [ // what `build` is broken with: commands before the keys are read
    'lost' => [['UNLINK', NEW_FILTER]],
    'anew' => [['UNLINK', NEW_FILTER], ['BF.RESERVE', NEW_FILTER, 0.001, 120_000]],
    'cut' => [['CLIENT', 'KILL', 'TYPE', 'normal']],
];

final class Database
{
    public array $rows = [];
    public int $asked = 0;
    public array $commands = [];

    public function __construct(private Closure $connect)
    {
        for ($i = 0; $i < 2000; $i++) {
            $this->rows["user:$i"] = "name $i";
        }
    }

    public function get(string $key): ?string
    {
        $this->asked += (int) str_starts_with($key, 'absent');
        return $this->rows[$key] ?? null;
    }

    public function insert(string $key, string $value): void
    {
        $this->rows[$key] = $value;
    }

    public function keys(): array
    {
        foreach ($this->commands as $words) {
            ($this->connect)(10.0)->rawCommand(...$words);
        }
        return array_keys($this->rows);
    }
}

/** Five lookups of rows that exist and twenty of rows that do not. */
function round_of_lookups(Guard $guard, Database $database, int $number): string
{
    $keys = array_keys($database->rows);
    $before = $database->asked;
    $present = [end($keys)];
    for ($i = 0; $i < 4; $i++) {
        $present[] = $keys[($number * 4 + $i) % count($keys)];
    }
    $hidden = array_filter($present, fn ($key) => $guard->lookup($key) === null);
    for ($i = 0; $i < 20; $i++) {
        if ($guard->lookup("absent:$number:$i") !== null) {
            throw new RuntimeException('found what is not there');
        }
    }
    return $hidden ? 'hidden ' . implode(' ', $hidden) : $database->asked - $before . " $guard->failures";
}

['host' => $host, 'port' => $port] = parse_url($argv[1]);
$connect = fn (float $timeout) => Guard::connect($host, $port, $timeout);
$database = new Database($connect);
$guard = new Guard($connect, $database);
for ($number = 0; $line = fgets(STDIN); $number++) {
    [$command, $key] = [...explode(' ', trim($line)), null];
    try {
        $answer = 'ok';
        if ($command === 'build') {
            $database->commands = $key ? BREAKS[$key] : [];
            Guard::build($connect(10.0), $database, 0);
        } elseif ($command === 'insert') {
            $guard->insert($key, "inserted $key");
        } else {
            $answer = round_of_lookups($guard, $database, $number);
        }
    } catch (Throwable $error) {
        $answer = "raised {$error->getMessage()}";
    }
    echo "$answer\n";
}
