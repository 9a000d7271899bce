-- Gives the claim its place among those of all nodes. Further arguments: score, who comes, and whether it takes the
-- place of older waiters that say so too. Only claims that have their place are compared.
local score, by, newest = ARGV[more], ARGV[more + 1], ARGV[more + 2]
-- One that comes again ('2') is older than all that come for the first time.
local rank = newest == '1' and score or '0'
for n = 1, names do
  local queue, holds = queue_key(n), holders_key(n)
  for _, key in ipairs({ queue, holds }) do
    local at = redis.call('ZSCORE', key, id)
    -- One that holds a majority has its place; this has come late.
    if at and at ~= '0' then redis.call('ZADD', key, score, id) end
  end
  local own = redis.call('ZSCORE', queue, id)
  if newest ~= '0' and redis.call('EXISTS', claim_key(n)) == 1 then
    redis.call('HSET', claim_key(n), 'newest', rank, 'who', by)
    local waiting = redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES')
    for i = 1, #waiting, 2 do
      local who = waiting[i]
      local c = redis.call('HMGET', claim_of(n, who), 'newest', 'who')
      -- One that holds a majority and waits here alone is no waiter.
      if who ~= id and c[1] and waiting[i + 1] ~= '0' then
        if tonumber(c[1]) < tonumber(rank) then
          remove(n, who, 'superseded', by)
        elseif c[1] ~= '0' and own and own ~= '0' then
          remove(n, id, 'superseded', c[2])
        end
      end
    end
  end
end
for n = 1, names do settle(n) end
return answer('in')
