-- Further arguments: how, who asks, for how long to keep the id out (what its client has sent may still be on its way),
-- and how many names of it are known. Answers whether there was such an entry, or its record if it has more names.
local how, by = ARGV[more], ARGV[more + 1]
local present = false
for n = 1, names do
  local c = redis.call('HMGET', claim_key(n), 'mode', 'gone', 'about')
  if (c[1] and not c[2]) or value_of(n) == id then
    present = true
    local known, record = pcall(cjson.decode, c[3] or '')
    if known and record.names and #record.names > tonumber(ARGV[more + 3]) then return c[3] end
  end
end
if not present then
  if how ~= 'ask' then
    for n = 1, names do
      redis.call('HSET', claim_key(n), 'gone', 'evicted', 'by', by)
      redis.call('PEXPIRE', claim_key(n), ARGV[more + 2])
    end
  end
  return 0
end
for n = 1, names do
  if how == 'ask' then
    redis.call('HSET', claim_key(n), 'asked', by)
    if redis.call('PTTL', claim_key(n)) < 0 then redis.call('PEXPIRE', claim_key(n), ARGV[more + 2]) end
  else
    remove(n, id, 'evicted', by)
    redis.call('HSET', claim_key(n), 'gone', 'evicted', 'by', by)
    if redis.call('PTTL', claim_key(n)) < tonumber(ARGV[more + 2]) then
      redis.call('PEXPIRE', claim_key(n), ARGV[more + 2])
    end
    settle(n)
  end
end
return 1
