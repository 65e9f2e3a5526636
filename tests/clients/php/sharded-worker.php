<?php
// Runs the guard and the crawler for tests/clients/python/test_sharded.py; sharded_worker.py there says what it reads and prints.

declare(strict_types=1);

require __DIR__ . '/sharded.php';

final class Database
{
    public array $rows = [];
    public int $asked = 0;

    public function __construct()
    {
        for ($i = 0; $i < 2000; $i++) {
            $this->rows["user:$i"] = "name $i";
        }
    }

    public function get(string $key): ?string
    {
        $this->asked++;
        return $this->rows[$key] ?? null;
    }

    public function insert(string $key, string $value): void
    {
        $this->rows[$key] = $value;
    }
}

final class Worker
{
    private Sharded $filter;
    private Database $database;
    private ShardedGuard $guard;
    private ShardedCrawler $crawler;
    private int $rounds = 0;
    private bool $idle = true;

    public function __construct(private string $node)
    {
    }

    public function run(string $command, string ...$words): string|int
    {
        return match ($command) {
            'use' => $this->use(...$words) ?? 'ok',
            'shard' => implode(' ', array_map(fn ($item) => Sharded::shardOf($item, (int) $words[0]), array_slice($words, 1))),
            'markers' => implode(',', Sharded::markers((int) $words[0])),
            'lookup' => implode(' ', array_map($this->lookup(...), $words)),
            'insert' => $this->guard->insert($words[0], 'inserted') ?? 'ok',
            'claim' => vsprintf('new %s later %s', array_map(fn ($urls) => implode(',', $urls), $this->crawler->claim($words))),
            'fetched' => $this->crawler->fetched($words[0]) ?? 'ok',
            'keys' => implode(' ', array_keys($this->database->rows)),
            'round' => $this->idle ? '0 0' : $this->round(),
        };
    }

    private function use(string $name, ?string $idle = null): void
    {
        $this->idle = $idle !== null;
        [$reader, $writer, $claims] = array_map(fn ($timeout) => new Nodes([$this->node], $timeout), [0.5, 1.0, 1.0]);
        $this->filter = new Sharded($name, $reader, $writer);
        $this->database = new Database();
        $this->guard = new ShardedGuard($this->filter, $this->database);
        $this->crawler = new ShardedCrawler($this->filter, $claims);
    }

    private function lookup(string $key): string
    {
        $asked = $this->database->asked;
        $row = $this->guard->lookup($key);
        return ($row === null ? 'none' : 'row') . str_repeat('?', $this->database->asked - $asked);
    }

    private function round(): string
    {
        $this->rounds++;
        try {
            $this->guard->insert("php:$this->rounds", 'inserted');
        } catch (Throwable $error) {
            error_log('not inserted: ' . $error->getMessage());
        }
        $keys = array_keys($this->database->rows);
        $present = [end($keys)];
        for ($i = 0; $i < 4; $i++) {
            $present[] = $keys[($this->rounds * 4 + $i) % count($keys)];
        }
        $hidden = array_filter($present, fn ($key) => $this->guard->lookup($key) === null);
        $asked = $this->database->asked;
        for ($i = 0; $i < 5; $i++) {
            $this->guard->lookup("absent:$this->rounds:$i") === null || throw new LogicException('found what is not there');
        }
        $asked = $this->database->asked - $asked;
        return $hidden ? 'hidden ' . implode(' ', $hidden) : "$asked {$this->filter->failures}";
    }
}

$worker = new Worker(str_replace('redis://', '', $argv[1]));
while (($line = fgets(STDIN)) !== false) {
    try {
        echo $worker->run(...explode(' ', rtrim($line))), "\n";
    } catch (Throwable $error) {
        echo 'raised ', get_class($error), ': ', str_replace("\n", ' ', $error->getMessage()), "\n";
    }
}
