-- Further arguments: record, mode, ttl, score (0 for one that holds a majority, nothing for a new one), and for each name
-- the slot of its hold or nothing; then the number of this attempt of its client.
local about, mode, ttl, score = ARGV[more], ARGV[more + 1], tonumber(ARGV[more + 2]), ARGV[more + 3]
local attempt = ARGV[more + 4 + names]

local function describe(n)
  redis.call('HSET', claim_key(n), 'mode', mode, 'about', about, 'since', string.format('%.0f', now), 'attempt', attempt)
  redis.call('PEXPIRE', claim_key(n), ttl)
  if ARGV[more + 3 + n] ~= '' then redis.call('HSET', claim_key(n), 'wish', ARGV[more + 3 + n]) end
end

-- The usual case first, in as few steps as it can be: nobody is there.
local free = true
for n = 1, names do
  if redis.call('EXISTS', lock_key(n), queue_key(n), holders_key(n), claim_key(n)) > 0 then free = false end
end
if free then
  local rows, stamp = {}, string.format('%.0f', now)
  local slots = string.sub(mode, 1, 6) == 'slots:'
  for n = 1, names do
    local wish = ARGV[more + 3 + n]
    local slot = slots and (wish ~= '' and wish or '1')
    local token, value = next_token(n), proof(mode, id)
    redis.call('SET', lock_key(n), value, 'PX', ttl)
    redis.call('HSET', claim_key(n), 'mode', mode, 'about', about, 'since', stamp, 'attempt', attempt, 'token', token,
      'held', stamp)
    if slot then redis.call('HSET', claim_key(n), 'slot', slot, 'wish', slot) end
    redis.call('PEXPIRE', claim_key(n), ttl)
    local at = score == '' and stamp or score
    redis.call('ZADD', holders_key(n), at, id)
    redis.call('PEXPIRE', holders_key(n), ttl + 86400000)
    rows[n] = { token, slot, false, false, false, false, value, 0, ttl, false, false, false, false, false, at, false, '', token }
  end
  return answer('in', rows)
end

local known = false
for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'gone', 'attempt')
  if c[1] or c[2] then known = true end
  if c[1] and not c[2] then
    if tonumber(c[3] or 0) < tonumber(attempt) then redis.call('HSET', claim_key(n), 'attempt', attempt) end
    redis.call('PEXPIRE', claim_key(n), ttl)
  end
end
for n = 1, names do settle(n) end
if known then
  -- What it has here lives on with it.
  for n = 1, names do
    if value_of(n) == id then redis.call('PEXPIRE', lock_key(n), ttl) end
  end
  return answer('in')
end
for n = 1, names do
  local other = redis.call('ZRANGE', holders_key(n), 0, 0)[1] or redis.call('ZRANGE', queue_key(n), 0, 0)[1]
  local c = other and redis.call('HMGET', claim_of(n, other), 'mode', 'about')
  if c and c[1] and kind_of(c[1]) ~= kind_of(mode) then return { 'mismatch', n, c[1], c[2] } end
end
for n = 1, names do
  local at = score
  if at == '' then
    local last = redis.call('ZRANGE', queue_key(n), -1, -1, 'WITHSCORES')[2]
    local held = redis.call('ZRANGE', holders_key(n), -1, -1, 'WITHSCORES')[2]
    at = string.format('%.0f', math.max(now, tonumber(last or 0) + 1, tonumber(held or 0) + 1))
  end
  describe(n)
  redis.call('ZADD', queue_key(n), at, id)
  keep(queue_key(n), ttl)
  settle(n)
end
return answer('in')
