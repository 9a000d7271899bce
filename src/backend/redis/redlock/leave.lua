-- Further arguments: whether the run was a success, the attempt that is withdrawn or nothing, and for how long to keep the
-- id out. What frees comes first: once a script has written, a server without memory lets it write the rest.
local function leave(n, c)
  local value, queue, holds = value_of(n), queue_key(n), holders_key(n)
  local only = redis.call('ZRANGE', holds, 0, 1)
  local alone = c[2] and value == proof(c[1], id) and #only == 1 and only[1] == id and ARGV[more + 2] == '0'
    and redis.call('EXISTS', queue) == 0
  if alone then
    -- The usual case, in as few steps as it can be: nobody else is there.
    redis.call('DEL', lock_key(n), holds, claim_key(n))
  else
    redis.call('ZREM', queue, id)
    redis.call('ZREM', holds, id)
    if value == id then redis.call('DEL', lock_key(n)) end
    -- What keeps the id out stays: whoever withdraws may not be the last who says something of it.
    if not c[4] then redis.call('DEL', claim_key(n)) end
    if ARGV[more + 2] ~= '0' then
      redis.call('HSET', claim_key(n), 'gone', 'left')
      redis.call('PEXPIRE', claim_key(n), ARGV[more + 2])
    end
  end
  if c[3] and ARGV[more] == '1' then record_success(n, c[3]) end
  if not alone then settle(n) end
end

for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'held', 'gone', 'attempt')
  -- What a later attempt has is not taken by the withdrawal of an earlier one that was long under way.
  if tonumber(c[5] or 0) <= (tonumber(ARGV[more + 1]) or math.huge) then leave(n, c) end
end
return 1
