-- The last success is that of the run which acquired last: of those who hold together it may end first.
local function record_success(n, held)
  local last = tonumber(redis.call('HGET', counters_key(n), 'success'))
  if not last or last < tonumber(held) then redis.call('HSET', counters_key(n), 'success', held) end
end

