-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

-- Whether a success is dated more than a minute later than now, which tells nothing.
local function is_nonsense(last)
  local clock = redis.call('TIME')
  return last > (clock[1] + 60) * 1000000 + clock[2]
end

-- The last success is that of the run which acquired last: of those who hold together it may end first.
local function record_success(n, held)
  local last = tonumber(redis.call('HGET', counters_key(n), 'success'))
  if not last or last < tonumber(held) or is_nonsense(last) then
    redis.call('HSET', counters_key(n), 'success', held)
  end
end

