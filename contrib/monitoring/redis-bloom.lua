-- Metrics of redis-bloom for Debian's prometheus-redis-exporter (option -script), which sends this
-- script to the server by EVAL and exports each pair of a name and a number:
--
--   redis_script_values{key="bf_filters"} 3           each numeric field bf_... of INFO modules
--   redis_script_values{key="bf_key_items:urls"} 10   of each filter in the list `keys`
--   redis_script_values{key="bf_shard_items:5:8:1:urls"} 10
--                                                     of each shard (5 of 8, generation 1) of this node
--   redis_script_values{key="bf_sharded_shards:1:urls"} 8
--                                                     of each sharded filter (generation 1)
--
-- A key that is missing, that is no filter, that the user may not read, or that another node of a
-- cluster has, yields nothing.

-- The keys of the filters to watch one by one, in database 0: {'urls:1', 'urls:2'}.
local keys = {}
-- The sharded filters to watch, each with its number of shards: {urls = {128}, ['user:ids'] = {16}}.
-- With {urls = {128, 256}} it is watched before and after it is rebuilt from 128 to 256 shards.
local sharded = {}
-- The most keys that this script looks at to find shards, in all slots together.
local budget = 100000

-- The word of BF.INFO for each metric of a filter.
local words = {items = 'ITEMS', capacity = 'CAPACITY', layers = 'FILTERS', error = 'ERROR', fpr = 'FPR'}

-- By name: no name may be exported twice.
local values = {}

local function export(name, value)
    values[name] = tostring(value)
end

-- What BF.INFO answers to `word`; nil if `key` has no filter here.
local function info(key, word)
    local reply = redis.pcall('BF.INFO', key, word)
    if type(reply) == 'table' then
        reply = not reply.err and reply[1]
    end
    return reply or nil
end

-- Exports the metrics of the filter `key`. The first part of their names is `kind`, the last `id`.
local function export_filter(kind, key, id)
    for metric, word in pairs(words) do
        local value = info(key, word)
        if tonumber(value) then
            export(kind .. metric .. ':' .. id, value)
        end
    end
end

-- Exports the metrics of `key` if it is a shard of the sharded filter `name`. Returns whether it is.
local function export_shard(name, key)
    local start = '{' .. name .. ':'
    local generation = key:sub(1, #start) == start and key:sub(#start + 1):match('^%d+}:(%d+)$')
    local shard = generation and info(key, 'SHARD')
    if type(shard) ~= 'table' then
        return false
    end
    export_filter('bf_shard_', key, shard[1] .. ':' .. shard[2] .. ':' .. generation .. ':' .. name)
    return true
end

-- Exports the metrics of the shards of a filter of `count` shards that this node of a cluster has.
-- Returns in how many slots it found none because it could not look at more keys. Returns nil if
-- this server is no node of a cluster.
local function export_slots(name, count)
    local unwatched = 0
    for shard = 0, count - 1 do
        -- The slot that docs/reference/sharding.md gives each shard.
        local slot = math.floor((2 * shard + 1) * 16384 / (2 * count))
        -- One key even without a budget: it tells whether this node has any of the slot.
        local limit = math.max(budget, 1)
        local there = redis.pcall('CLUSTER', 'GETKEYSINSLOT', slot, limit)
        if there.err then
            return nil
        end
        local found = #there < limit
        budget = budget - #there
        for _, key in ipairs(there) do
            found = export_shard(name, key) or found
        end
        unwatched = unwatched + (found and 0 or 1)
    end
    return unwatched
end

-- The fields of the descriptor of `name`; nil if this node has none.
local function descriptor(name)
    local reply = redis.pcall('HGETALL', name)
    if reply.err or #reply == 0 then
        return nil
    end
    local fields = {}
    for at = 1, #reply, 2 do
        fields[reply[at]] = reply[at + 1]
    end
    return fields
end

-- The number in a field, if it is decimal and `least` or more; otherwise nil.
local function integer(text, least)
    local number = text and text:match('^%d+$') and tonumber(text)
    return number and number >= least and number or nil
end

-- Whether a client can use the descriptor (docs/reference/sharding.md). Without a `poll` it can, too.
local function is_whole(fields)
    local count, rate = integer(fields.shards, 1), tonumber(fields.error)
    if not (count and count <= 1024 and rate and rate > 0 and rate < 1) then
        return false
    end
    for shard = 0, count - 1 do
        if not fields[tostring(shard)] then
            return false
        end
    end
    return integer(fields.generation, 1) and integer(fields.capacity, 1)
        and fields.rule == 'crc32' and fields.state == 'ready'
end

local function export_sharded(name, counts)
    local fields = descriptor(name)
    local unwatched = 0
    for _, count in ipairs(counts) do
        local slots = export_slots(name, count)
        if not slots then
            -- Without a cluster all shards are on this server.
            for _, key in pairs(fields or {}) do
                export_shard(name, key)
            end
            counts = {fields and tonumber(fields.shards)}
            break
        end
        unwatched = unwatched + slots
    end
    if fields then
        local generation = tonumber(fields.generation) or 0
        local function export_figure(figure, value)
            export('bf_sharded_' .. figure .. ':' .. generation .. ':' .. name, value)
        end
        local whole, rebuilding, listed = is_whole(fields), false, false
        for field in pairs(fields) do
            rebuilding = rebuilding or field:sub(1, 5) == 'next.'
        end
        for _, count in ipairs(counts) do
            listed = listed or count == tonumber(fields.shards)
        end
        export_figure('half_written', whole and 0 or 1)
        export_figure('rebuilding', rebuilding and 1 or 0)
        if whole then
            export_figure('shards', tonumber(fields.shards))
            export_figure('capacity', tonumber(fields.capacity))
            unwatched = unwatched + (listed and 0 or 1)
        end
    end
    export('bf_sharded_unwatched:0:' .. name, unwatched)
end

for name, value in redis.call('INFO', 'modules'):gmatch('\n(bf_[%w_]+):([^\r\n]+)') do
    if tonumber(value) then
        export(name, value)
    end
end

for _, key in ipairs(keys) do
    export_filter('bf_key_', key, key)
end

-- A replica has no shards of its own: those of its primary would count twice.
if redis.call('INFO', 'replication'):find('role:master') then
    for name, counts in pairs(sharded) do
        export_sharded(name, counts)
    end
end

local names_and_values = {}
for name, value in pairs(values) do
    names_and_values[#names_and_values + 1] = name
    names_and_values[#names_and_values + 1] = value
end
return names_and_values
