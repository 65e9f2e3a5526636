-- Metrics of redis-bloom for Debian's prometheus-redis-exporter (option -script), which sends this
-- script to the server by EVAL and exports each pair of a name and a number:
--
--   redis_script_values{key="bf_filters"} 3           each numeric field bf_... of INFO modules
--   redis_script_values{key="bf_key_items:urls"} 10   of each filter in the list below
--
-- A key that is missing, that is no filter, that the user may not read, or that another node of a
-- cluster has, yields nothing.

-- The keys of the filters to watch one by one, in database 0: {'urls:1', 'urls:2'}.
local keys = {}

-- The word of BF.INFO for each metric of a filter.
local words = {items = 'ITEMS', capacity = 'CAPACITY', layers = 'FILTERS', error = 'ERROR', fpr = 'FPR'}

local values = {}

local function export(name, value)
    values[#values + 1] = name
    values[#values + 1] = tostring(value)
end

for name, value in redis.call('INFO', 'modules'):gmatch('\n(bf_[%w_]+):([^\r\n]+)') do
    if tonumber(value) then
        export(name, value)
    end
end

for _, key in ipairs(keys) do
    for metric, word in pairs(words) do
        local reply = redis.pcall('BF.INFO', key, word)
        if type(reply) == 'table' and not reply.err then
            reply = reply[1]
        end
        if tonumber(reply) then
            export('bf_key_' .. metric .. ':' .. key, reply)
        end
    end
end

return values
