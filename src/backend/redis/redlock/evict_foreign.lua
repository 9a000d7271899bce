-- Removes the hold of another program's client if it is still what the id stands for; answers whether it was. Key: the lock's.
-- Argument: the id.
local identity = foreign_identity(KEYS[1])
if type(identity) == 'table' then return identity end
if identity ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
